#pragma once
// Legend of shape suffixes, used all over model/ and engine/:
//   T  tokens of all rows, packed one after another (no batch dimension and no padding in a model;
//      row offsets are in the step)
//   D  width of the residual stream          V  vocabulary
//   N  query heads   K  key/value heads      H  width of a head
//   F  width of the MLP                      B, S, P  batch, sequence, past+present of one group
// x_TD is a tensor [T, D].
