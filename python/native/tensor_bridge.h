#pragma once
// at::Tensor <-> torch.Tensor: the same tensor object passes, gradients and Parameter kept. The
// only neighbour of torch's own Python headers is tensor_bridge.cpp (8 s to compile).
#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>

namespace pellucid::python {

/// A new reference to the torch.Tensor of `tensor`; None for an undefined one. Needs the GIL.
PyObject* wrap_tensor(const at::Tensor& tensor);
bool is_tensor(PyObject* object);
/// The tensor of a torch.Tensor or a subclass. Only when is_tensor(object).
at::Tensor unwrap_tensor(PyObject* object);

/// Gives a placeholder (a wrapper subclass without numbers) the numbers of `result`: the same
/// Python object becomes an ordinary tensor, provided that the caller has set its __class__.
void materialise(at::Tensor placeholder, const at::Tensor& result);

/// Which memory a tensor shows: equal for views of each other. For meta tensors too.
int64_t storage_id(const at::Tensor& tensor);

}  // namespace pellucid::python

namespace nanobind::detail {

template <>
struct type_caster<at::Tensor> {
  NB_TYPE_CASTER(at::Tensor, const_name("torch.Tensor"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!pellucid::python::is_tensor(source.ptr())) return false;
    value = pellucid::python::unwrap_tensor(source.ptr());
    return true;
  }
  static handle from_cpp(const at::Tensor& tensor, rv_policy, cleanup_list*) noexcept {
    return pellucid::python::wrap_tensor(tensor);
  }
};

}  // namespace nanobind::detail
