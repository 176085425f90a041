// The numbers behind GELU for bf16 (erf-inl.h), for all who compute it: the polynomial h(t),
// highest power first, where Phi(-t) = 2^-h(t); the bound of t; 2^r for |r| <= 1/2; and the number
// that rounds to an integer (exp2-inl.h).
#ifndef DENSEFORMER_KERNELS_GELU_FAST_H_
#define DENSEFORMER_KERNELS_GELU_FAST_H_

namespace denseformer::gelu_fast {

inline constexpr float kBound = 13.0f;
inline constexpr float kTail[7] = {-3.28750529e-5f, 7.60217071e-4f, -8.02443762e-3f, 5.32797598e-2f,
                                   4.58904035e-1f,  1.15114864f,    9.99999014e-1f};
inline constexpr float kMagic = 12583039.0f;  // 1.5 * 2^23 + 127
inline constexpr float kPower[5] = {9.57010057e-3f, 5.59178602e-2f, 2.40247449e-1f, 6.93121815e-1f,
                                    9.99999261e-1f};

}  // namespace denseformer::gelu_fast

#endif  // DENSEFORMER_KERNELS_GELU_FAST_H_
