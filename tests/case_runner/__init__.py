"""Case files: one text (model, prompt, program, expectation), run in every layout. docs/reference/cases.md."""
