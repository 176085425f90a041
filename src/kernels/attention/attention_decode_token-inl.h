// Attention of one new token, the usual step of decoding, which is bound by reading keys and
// values. The heads of a run are computed side by side, so that memory is read in the order of its
// addresses: the keys of a page of all heads of the run, then those of the next page; then values.
#if defined(DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_TOKEN_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_TOKEN_INL_H_
#undef DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_TOKEN_INL_H_
#else
#define DENSEFORMER_KERNELS_ATTENTION_ATTENTION_DECODE_TOKEN_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "kernels/attention/attention_decode_heads-inl.h"
#include "kernels/attention/attention_row-inl.h"
#include "kernels/attention/attention_units-inl.h"
#include "tensor/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace denseformer {
namespace HWY_NAMESPACE {
namespace {

// The pieces of a run in the order in which they are read, then those of the next run.
template <class E>
class PieceOrder {
 public:
  explicit PieceOrder(const DecodeHeads<E>& run) { Enter(&run); }

  // Where the next piece begins; null where nothing is known.
  const E* Next() {
    if (run_ == nullptr) return nullptr;
    const E* const piece = at_;
    at_ += step_;
    if (--left_ == 0) NextPage();
    return piece;
  }
  void Skip(size_t pieces) {
    for (size_t n = 0; n < pieces; ++n) Next();
  }
  // Bytes from `piece` to the next one; 0, which costs nothing, where nothing is known.
  ptrdiff_t DistanceFrom(const E* piece) {
    const E* const next = Next();
    if (next == nullptr) return 0;
    return reinterpret_cast<const char*>(next) - reinterpret_cast<const char*>(piece);
  }

 private:
  void Enter(const DecodeHeads<E>* run) {
    run_ = run;
    if (run_ == nullptr) return;
    page_ = 0;
    values_ = false;
    EnterPage();
  }
  void EnterPage() {
    at_ = values_ ? run_->Values(page_, 0) : run_->Keys(page_, 0);
    step_ = values_ ? run_->value_piece() : run_->key_piece();
    left_ = run_->run;
  }
  void NextPage() {
    if (++page_ == run_->page_count()) {
      if (values_) return Enter(run_->next);
      page_ = 0;
      values_ = true;
    }
    EnterPage();
  }

  const DecodeHeads<E>* run_;
  const E* at_;
  size_t step_, left_, page_;
  bool values_;
};

// A query times the keys of a page.
struct KeyPiece {
  const float* query;
  const float* keys;
  float* scores;
  ptrdiff_t ahead;
};

// Pieces that are summed side by side: one has too few vectors to hide the latency of additions.
constexpr size_t kMostPieces = std::max<size_t>(1, 4 * kTileLanes / kPage);

// The same sums as MultiplyUnits.
template <class E, size_t kPieces>
HWY_INLINE void ScorePieces(const KeyPiece* pieces, size_t units) {
  const TileTag d;
  constexpr size_t kVectors = kPage / kTileLanes;
  WithUnits<E>([&]<class U>(U) HWY_ATTR {
    TileVec sum[kPieces][kVectors];
    for (auto& of_piece : sum) {
      for (TileVec& s : of_piece) s = hn::Zero(d);
    }
    for (size_t k = 0; k < units; ++k) {
      for (size_t p = 0; p < kPieces; ++p) {
        const TileVec factor = hn::Set(d, LoadUnit(pieces[p].query + k));
        for (size_t v = 0; v < kVectors; ++v) {
          const float* const from = pieces[p].keys + k * kPage + v * kTileLanes;
          FetchAhead(from, pieces[p].ahead);
          sum[p][v] = U::MulAdd(factor, hn::LoadU(d, from), sum[p][v]);
        }
      }
    }
    for (size_t p = 0; p < kPieces; ++p) {
      for (size_t v = 0; v < kVectors; ++v) {
        hn::StoreU(sum[p][v], d, pieces[p].scores + v * kTileLanes);
      }
    }
  });
}

// scores [run, stride] of whole pages: what stands behind the last token is of no use. To read only
// the half of a last page that is in use made most steps slower (docs/performance.md).
template <class E>
void ScorePages(const DecodeHeads<E>& run, const E* queries, float* scores, size_t stride,
                PieceOrder<E>& ahead) {
  const size_t size = run.head_size, units = size / kTerms<E>;
  KeyPiece pieces[kMostPieces];
  size_t count = 0;
  for (size_t page = 0; page < run.page_count(); ++page) {
    for (size_t h = 0; h < run.run; ++h) {
      const E* const keys = run.Keys(page, h);
      pieces[count++] = {Units(queries + h * size), Units(keys), scores + h * stride + page * kPage,
                         ahead.DistanceFrom(keys)};
      if (count < kMostPieces) continue;
      ScorePieces<E, kMostPieces>(pieces, units);
      count = 0;
    }
  }
  for (size_t p = 0; p < count; ++p) ScorePieces<E, 1>(pieces + p, units);
}

// sums [run, padded] = p V. What stands behind the last token in its unit is no part of the sum.
template <class E>
void AddPages(const DecodeHeads<E>& run, const float* p, size_t stride, float* sums,
              PieceOrder<E>& ahead) {
  const size_t padded = PaddedHead(run.head_size), seen = run.start + 1;
  std::fill_n(sums, run.run * padded, 0.0f);
  for (size_t page = 0; page < run.page_count(); ++page) {
    const size_t count = std::min(kPage, seen - page * kPage), whole = count / kTerms<E>;
    for (size_t h = 0; h < run.run; ++h) {
      const E* const values = run.Values(page, h);
      const float* const factors = p + h * stride + page * (kPage / kTerms<E>);
      float* const sum = sums + h * padded;
      MultiplyUnits<E, 1, TileC::kAdd>(factors, 0, Units(values), padded, whole, sum, padded,
                                       padded, ahead.DistanceFrom(values));
      if (count % kTerms<E> == 0) continue;
      MultiplyUnits<E, 1, TileC::kAdd, UnitPart::kFirstOfPair>(
          factors + whole, 0, Units(values) + whole * padded, padded, 1, sum, padded, padded,
          /*ahead=*/0);
    }
  }
}

template <class E>
void OneToken(const DecodeHeads<E>& run) {
  const size_t size = run.head_size, padded = PaddedHead(size), seen = run.start + 1;
  const size_t stride = RoundUp(seen, kPage) + 16;
  E *rotated, *queries;
  float *scores, *totals, *sums;
  const auto place = [&](ScratchPlan plan) {
    rotated = plan.Take<E>(run.run * size);
    queries = plan.Take<E>(run.run * size);
    scores = plan.Take<float>(run.run * stride);
    totals = plan.Take<float>(run.run);
    sums = plan.Take<float>(run.run * padded);
    return plan.used();
  };
  place(ScratchPlan(ThreadScratch(place(ScratchPlan()))));
  StoreNew(run, rotated);
  RotateQueries(run, 0, queries);
  PieceOrder<E> ahead(run);
  ahead.Skip(kAhead);
  ScorePages(run, queries, scores, stride, ahead);
  for (size_t h = 0; h < run.run; ++h) totals[h] = Probabilities(run, seen, scores + h * stride);
  AddPages(run, scores, stride, sums, ahead);
  for (size_t h = 0; h < run.run; ++h) {
    StoreResult(sums + h * padded, size, totals[h], run.out + h * size);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace denseformer
HWY_AFTER_NAMESPACE();

#endif  // per target
