#pragma once
// RMSNorm and LayerNorm, with their three sites.
#include <ATen/core/Tensor.h>

#include "hook/tap.h"

namespace pellucid::model {

struct Norm {
  enum class Kind : uint8_t { kRms, kLayer };
  Kind kind = Kind::kRms;
  at::Tensor weight_D;
  at::Tensor bias_D;  // undefined: none
  double epsilon = 1e-5;
};

struct NormSites {
  hook::Site scale, normalized, out;
};
inline constexpr NormSites kLn1{hook::Site::kLn1Scale, hook::Site::kLn1Normalized,
                                hook::Site::kLn1Out};
inline constexpr NormSites kLn2{hook::Site::kLn2Scale, hook::Site::kLn2Normalized,
                                hook::Site::kLn2Out};
inline constexpr NormSites kLnFinal{hook::Site::kLnFinalScale, hook::Site::kLnFinalNormalized,
                                    hook::Site::kLnFinalOut};

/// The wider of float32 and `dtype`: in what norms, rotary and softmax compute.
at::ScalarType wide(at::ScalarType dtype);

/// x: [..., D]; same shape and dtype back. The scale is computed and tapped in the wide dtype,
/// `normalized` and `out` are rounded to x's dtype.
at::Tensor apply_norm(const Norm& norm, const at::Tensor& x);
at::Tensor apply_norm(const Norm& norm, const at::Tensor& x, hook::Taps& taps,
                      const NormSites& sites, int layer);

}  // namespace pellucid::model
