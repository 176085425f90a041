// Attention against the formula in double precision, on the path that the CPU level selects.
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "base/random.h"

namespace denseformer {
namespace {

struct Case {
  int64_t batch, length, heads, head_size;
  float dropout = 0;

  int64_t width() const { return heads * head_size; }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "B" << c.batch << "_T" << c.length << "_H" << c.heads << "x" << c.head_size
             << "_drop" << static_cast<int>(c.dropout * 100);
}

using Doubles = std::vector<double>;

struct Result {
  Doubles out, lse;
};

Dropout DropoutOf(const Case& c) {
  return {.probability = c.dropout, .seed = 5, .stream = 9, .first = 6};
}

// Calls fn(b, h, i) for every row of every head.
template <class F>
void ForRows(const Case& c, F&& fn) {
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      for (int64_t i = 0; i < c.length; ++i) fn(b, h, i);
    }
  }
}

// Where row i of q (part 0), k (1) or v (2) begins in qkv; where it begins in out.
int64_t QkvAt(const Case& c, int64_t b, int64_t h, int64_t i, int64_t part) {
  return ((b * c.length + i) * 3 + part) * c.width() + h * c.head_size;
}
int64_t OutAt(const Case& c, int64_t b, int64_t h, int64_t i) {
  return (b * c.length + i) * c.width() + h * c.head_size;
}

// Scores s_ij of row i, and the multiplier of p_ij.
Doubles ScoresOfRow(const Case& c, const Doubles& qkv, int64_t b, int64_t h, int64_t i) {
  Doubles s(static_cast<size_t>(i) + 1);
  for (int64_t j = 0; j <= i; ++j) {
    for (int64_t e = 0; e < c.head_size; ++e) {
      s[j] += qkv[QkvAt(c, b, h, i, 0) + e] * qkv[QkvAt(c, b, h, j, 1) + e];
    }
    s[j] /= std::sqrt(static_cast<double>(c.head_size));
  }
  return s;
}
double Mask(const Case& c, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (c.dropout == 0) return 1;
  const int64_t index = ((b * c.heads + h) * c.length + i) * c.length + j;
  return DropoutOf(c).Scale(static_cast<uint64_t>(index));
}

Result ReferenceForward(const Case& c, const Doubles& qkv) {
  Result result{.out = Doubles(c.batch * c.length * c.width()),
                .lse = Doubles(c.batch * c.heads * c.length)};
  ForRows(c, [&](int64_t b, int64_t h, int64_t i) {
    const Doubles s = ScoresOfRow(c, qkv, b, h, i);
    double max = s[0], sum = 0;
    for (double value : s) max = std::isnan(value) || value > max ? value : max;
    for (double value : s) sum += std::exp(value - max);
    const double lse = max + std::log(sum);
    result.lse[(b * c.heads + h) * c.length + i] = lse;
    for (int64_t j = 0; j <= i; ++j) {
      const double p = std::exp(s[j] - lse) * Mask(c, b, h, i, j);
      for (int64_t e = 0; e < c.head_size; ++e) {
        result.out[OutAt(c, b, h, i) + e] += p * qkv[QkvAt(c, b, h, j, 2) + e];
      }
    }
  });
  return result;
}

Doubles ReferenceBackward(const Case& c, const Doubles& qkv, const Result& forward,
                          const Doubles& dout) {
  Doubles dqkv(qkv.size());
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_size));
  ForRows(c, [&](int64_t b, int64_t h, int64_t i) {
    const Doubles s = ScoresOfRow(c, qkv, b, h, i);
    const double lse = forward.lse[(b * c.heads + h) * c.length + i];
    const int64_t out_at = OutAt(c, b, h, i), q_at = QkvAt(c, b, h, i, 0);
    double delta = 0;
    for (int64_t e = 0; e < c.head_size; ++e) delta += forward.out[out_at + e] * dout[out_at + e];
    for (int64_t j = 0; j <= i; ++j) {
      const int64_t k_at = QkvAt(c, b, h, j, 1), v_at = QkvAt(c, b, h, j, 2);
      const double p = std::exp(s[j] - lse), mask = Mask(c, b, h, i, j);
      double dp = 0;
      for (int64_t e = 0; e < c.head_size; ++e) dp += dout[out_at + e] * qkv[v_at + e];
      const double ds = p * (dp * mask - delta) * scale;
      for (int64_t e = 0; e < c.head_size; ++e) {
        dqkv[v_at + e] += p * mask * dout[out_at + e];
        dqkv[q_at + e] += ds * qkv[k_at + e];
        dqkv[k_at + e] += ds * qkv[q_at + e];
      }
    }
  });
  return dqkv;
}

// Normal values rounded to E. They begin one element behind the start of the allocation: no
// kernel may count on alignment.
template <class E>
class Buffer {
 public:
  explicit Buffer(int64_t count) : values_(static_cast<size_t>(count) + 2, E(kGuard)) {}
  Buffer(int64_t count, uint64_t stream, float scale) : Buffer(count) {
    Random random(1, stream);
    for (int64_t i = 0; i < count; ++i) (*this)[i] = E(random.Normal() * scale);
  }
  E& operator[](int64_t i) { return values_[static_cast<size_t>(i) + 1]; }
  int64_t count() const { return static_cast<int64_t>(values_.size()) - 2; }
  Tensor View(Shape shape) { return Tensor(values_.data() + 1, shape); }
  Doubles ToDoubles() const {
    Doubles result;
    for (size_t i = 1; i + 1 < values_.size(); ++i) {
      result.push_back(static_cast<float>(values_[i]));
    }
    return result;
  }
  bool GuardsIntact() const {
    return static_cast<float>(values_.front()) == kGuard &&
           static_cast<float>(values_.back()) == kGuard;
  }
  bool SameBits(const Buffer& other) const {
    return std::memcmp(values_.data(), other.values_.data(), values_.size() * sizeof(E)) == 0;
  }

 private:
  static constexpr float kGuard = 77;
  std::vector<E> values_;
};

template <class E>
struct Pass {
  explicit Pass(const Case& c)
      : c(c),
        qkv(c.batch * c.length * 3 * c.width(), 1, 1.0f),
        dout(c.batch * c.length * c.width(), 2, 1.0f),
        out(dout.count()),
        dqkv(qkv.count()),
        lse(c.batch * c.heads * c.length) {}

  void Forward() {
    AttentionForward(qkv.View({c.batch, c.length, 3 * c.width()}), c.heads, DropoutOf(c),
                     out.View({c.batch, c.length, c.width()}),
                     lse.View({c.batch, c.heads, c.length}));
  }
  void Backward() {
    AttentionBackward(
        qkv.View({c.batch, c.length, 3 * c.width()}), out.View({c.batch, c.length, c.width()}),
        lse.View({c.batch, c.heads, c.length}), dout.View({c.batch, c.length, c.width()}), c.heads,
        DropoutOf(c), dqkv.View({c.batch, c.length, 3 * c.width()}));
  }

  Case c;
  Buffer<E> qkv, dout, out, dqkv;
  Buffer<float> lse;
};

// Largest difference relative to the largest value. Where the expected value is NaN or infinite, so
// must the other be.
double RelativeError(const Doubles& got, const Doubles& expected) {
  EXPECT_EQ(got.size(), expected.size());
  double error = 0, most = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(expected[i])) {
      const bool same = std::isnan(expected[i]) ? std::isnan(got[i]) : got[i] == expected[i];
      EXPECT_TRUE(same) << "at " << i << ": " << got[i] << ", expected " << expected[i];
      continue;
    }
    EXPECT_TRUE(std::isfinite(got[i])) << "at " << i << ": expected " << expected[i];
    error = std::max(error, std::abs(got[i] - expected[i]));
    most = std::max(most, std::abs(expected[i]));
  }
  return most > 0 ? error / most : error;
}

template <class E>
constexpr double kTolerance = std::is_same_v<E, float> ? 3e-6 : 0x1p-7;

// lse alone is held to fp32 rounding of its own value in either precision: scores are fp32 sums.
void ExpectLse(const Doubles& got, const Doubles& expected) {
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-6 * std::max(1.0, std::abs(expected[i]))) << "at " << i;
  }
}

template <class E>
void ExpectLikeReference(Pass<E>& pass) {
  const Doubles qkv = pass.qkv.ToDoubles(), dout = pass.dout.ToDoubles();
  const Result expected = ReferenceForward(pass.c, qkv);
  pass.Forward();
  EXPECT_LE(RelativeError(pass.out.ToDoubles(), expected.out), kTolerance<E>);
  EXPECT_TRUE(pass.out.GuardsIntact() && pass.lse.GuardsIntact());
  pass.Backward();
  // The backward pass is held against the formula applied to what it was given.
  const Result given{.out = pass.out.ToDoubles(), .lse = pass.lse.ToDoubles()};
  EXPECT_LE(RelativeError(pass.dqkv.ToDoubles(), ReferenceBackward(pass.c, qkv, given, dout)),
            kTolerance<E>);
  EXPECT_TRUE(pass.dqkv.GuardsIntact());
}

class Attention : public testing::TestWithParam<Case> {};

TEST_P(Attention, Fp32IsTheFormula) {
  Pass<float> pass(GetParam());
  ExpectLikeReference(pass);
  ExpectLse(pass.lse.ToDoubles(), ReferenceForward(pass.c, pass.qkv.ToDoubles()).lse);
}

TEST_P(Attention, Bf16IsTheFormula) {
  Pass<bf16> pass(GetParam());
  ExpectLikeReference(pass);
  ExpectLse(pass.lse.ToDoubles(), ReferenceForward(pass.c, pass.qkv.ToDoubles()).lse);
}

TEST_P(Attention, SameBitsWhateverTheThreads) {
  Pass<bf16> one(GetParam()), two(GetParam());
  Pass<float> three(GetParam()), four(GetParam());
  const int threads = NumThreads();
  for (auto* pass : {&one, &two}) {
    SetNumThreads(pass == &one ? 1 : 3);
    pass->Forward();
    pass->Backward();
  }
  for (auto* pass : {&three, &four}) {
    SetNumThreads(pass == &three ? 1 : 3);
    pass->Forward();
    pass->Backward();
  }
  SetNumThreads(threads);
  EXPECT_TRUE(one.out.SameBits(two.out) && one.lse.SameBits(two.lse));
  EXPECT_TRUE(one.dqkv.SameBits(two.dqkv));
  EXPECT_TRUE(three.out.SameBits(four.out) && three.lse.SameBits(four.lse));
  EXPECT_TRUE(three.dqkv.SameBits(four.dqkv));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(Case{1, 1, 1, 1}, Case{2, 1, 2, 64}, Case{2, 7, 3, 5},
                                         Case{1, 16, 1, 32}, Case{1, 31, 2, 64}, Case{2, 33, 2, 64},
                                         Case{1, 17, 1, 33}, Case{1, 49, 1, 80},
                                         Case{1, 64, 2, 128}, Case{1, 100, 3, 32},
                                         Case{1, 129, 1, 128}, Case{1, 130, 1, 200},
                                         Case{1, 256, 2, 64}, Case{1, 1000, 1, 32},
                                         Case{1, 1025, 1, 64}, Case{2, 7, 2, 12, 0.3f},
                                         Case{2, 65, 2, 64, 0.25f}, Case{1, 545, 1, 16, 0.1f}));

TEST(AttentionReference, BackwardIsTheDerivative) {
  const Case c{1, 6, 2, 3, 0.2f};
  Doubles qkv = Buffer<float>(c.length * 3 * c.width(), 1, 1.0f).ToDoubles();
  const Doubles dout = Buffer<float>(c.length * c.width(), 2, 1.0f).ToDoubles();
  const auto loss = [&] {
    const Result result = ReferenceForward(c, qkv);
    double sum = 0;
    for (size_t i = 0; i < dout.size(); ++i) sum += result.out[i] * dout[i];
    return sum;
  };
  const Doubles gradient = ReferenceBackward(c, qkv, ReferenceForward(c, qkv), dout);
  for (size_t i = 0; i < qkv.size(); ++i) {
    const double value = qkv[i], step = 1e-5;
    qkv[i] = value + step;
    const double above = loss();
    qkv[i] = value - step;
    const double below = loss();
    qkv[i] = value;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-8) << i;
  }
}

// Values that are not finite reach exactly the places that the formula says: never the past.
template <class E>
void ExpectNonFiniteAsReference() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const Case& c : {Case{1, 40, 2, 64}, Case{1, 9, 1, 6}}) {
    for (int64_t part = 0; part < 4; ++part) {  // q, k, v, dout
      for (float bad : {kNaN, kInfinity, -kInfinity}) {
        SCOPED_TRACE(testing::Message() << c << " part " << part << " value " << bad);
        Pass<E> pass(c);
        if (part < 3) {
          pass.qkv[QkvAt(c, 0, 0, 5, part) + 2] = E(bad);
        } else {
          pass.dout[OutAt(c, 0, 0, 5) + 2] = E(bad);
        }
        ExpectLikeReference(pass);
      }
    }
  }
}
TEST(AttentionValues, Fp32NonFiniteAsTheFormula) { ExpectNonFiniteAsReference<float>(); }
TEST(AttentionValues, Bf16NonFiniteAsTheFormula) { ExpectNonFiniteAsReference<bf16>(); }

template <class E>
void ExpectLargeScoresAsReference() {
  const Case c{1, 50, 1, 32};
  Pass<E> pass(c);
  for (int64_t i = 0; i < pass.qkv.count(); ++i) {
    pass.qkv[i] = E(static_cast<float>(pass.qkv[i]) * 30);
  }
  const Result expected = ReferenceForward(c, pass.qkv.ToDoubles());
  pass.Forward();
  EXPECT_LE(RelativeError(pass.out.ToDoubles(), expected.out), 0x1p-7);
  ExpectLse(pass.lse.ToDoubles(), expected.lse);
}
TEST(AttentionValues, Fp32LargeScoresDoNotOverflow) { ExpectLargeScoresAsReference<float>(); }
TEST(AttentionValues, Bf16LargeScoresDoNotOverflow) { ExpectLargeScoresAsReference<bf16>(); }

TEST(AttentionValues, LseMayBeLeftOut) {
  const Case c{1, 20, 2, 16};
  Pass<float> pass(c), with_lse(c);
  with_lse.Forward();
  AttentionForward(pass.qkv.View({c.batch, c.length, 3 * c.width()}), c.heads, {},
                   pass.out.View({c.batch, c.length, c.width()}), Tensor());
  EXPECT_TRUE(pass.out.SameBits(with_lse.out));
}

}  // namespace
}  // namespace denseformer
