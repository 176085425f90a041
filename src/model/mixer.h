// Depth mixers whose weights are not one scalar per source (those run on the averager, dwa.h):
// dynamic, attention, attnres, and static weights of several streams.
//
// H_j is what a module reads of depth j, kept in the history: X_j, or with attention and attnres
// the increment V_j = X_j - Y^r_{j-1} (V_0 = X_0). rms(x) = x / sqrt(mean(x^2) + 1e-6). For each
// token and stream, over the sources j of the module after block i:
//   static     Y = sum_j b_j X_j
//   dynamic    a = b + W2 GELU(W1 rms(X_i));   Y = sum_j a_j X_j
//   prepost    Y = X_i + post * rms(sum_j a_j rms(X_j))
//   attention  p = softmax_j(query . rms(V_j));   Y = X_i + gate * sum_j p_j V_j
//   attnres    Y = sum_j p_j V_j
// A weight of exactly 0 takes its source out of the sum, so that at the initial weights of all but
// attnres Y is X_i bit for bit.
#ifndef DENSEFORMER_MODEL_MIXER_H_
#define DENSEFORMER_MODEL_MIXER_H_

#include "model/activations.h"
#include "model/model.h"

namespace denseformer {

const char* StreamName(Stream stream);  // "r", "q", "k" or "v"

// Whether H_i is an increment rather than X_i.
bool KeepsIncrement(const Model& model, int i);

// What the history needs beside X_i, which the caller has stored there unless H_i is an increment:
// the increment from activations.x(i) and activations.y(i - 1), and 1 / rms of H_i.
void FinishHistory(const Model& model, int i, Activations& activations);

// The streams of the module after block i from activations.x(i) and the history.
void MixForward(const Model& model, int i, Activations& activations);

// dX_i in activations.dx: where depth i has a module, from the gradients of its streams
// (activations.dy), else from what dx holds, plus what all later modules took from H_i. Adds the
// gradients of the module's parameters, and to activations.dhistory of its sources.
void MixBackward(const Model& model, int i, Gradients gradients, Activations& activations);

// After the backward pass of block i: an increment V_i also reads Y^r_{i-1}, whose gradient is dy.
void IncrementBackward(const Model& model, int i, const Tensor& dy, Activations& activations);

}  // namespace denseformer

#endif  // DENSEFORMER_MODEL_MIXER_H_
