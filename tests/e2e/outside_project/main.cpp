#include <pellucid/version.h>

#include <iostream>

int main() { std::cout << pellucid::version() << "\n"; }
