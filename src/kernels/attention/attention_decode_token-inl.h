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

// Calls store(h) and read(h) for every head of the run, a head's store before the read of the head
// before it: a load that spans a store waits until that has reached the cache.
template <class Store, class Read>
HWY_INLINE void StoreAndRead(size_t heads, Store&& store, Read&& read) {
  store(0);
  for (size_t h = 0; h < heads; ++h) {
    if (h + 1 < heads) store(h + 1);
    read(h);
  }
}

// scores [run, stride] of whole pages: what stands behind the last token is of no use. To read only
// the half of a last page that is in use made most steps slower (docs/performance.md).
template <class E>
void ScorePages(const DecodeHeads<E>& run, const E* queries, const E* new_keys, float* scores,
                size_t stride, PieceOrder<E>& ahead) {
  const size_t size = run.head_size, units = size / kTerms<E>, last = run.page_count() - 1;
  const auto score = [&](size_t page, size_t h) HWY_ATTR {
    const E* const keys = run.Keys(page, h);
    MultiplyUnits<E, 1, TileC::kSet>(Units(queries + h * size), 0, Units(keys), kPage, units,
                                     scores + h * stride + page * kPage, 0, kPage,
                                     ahead.DistanceFrom(keys));
  };
  for (size_t page = 0; page < last; ++page) {
    for (size_t h = 0; h < run.run; ++h) score(page, h);
  }
  StoreAndRead(
      run.run, [&](size_t h) { StoreKey(run, 0, h, new_keys); }, [&](size_t h) { score(last, h); });
}

// sums [run, padded] = p V. What stands behind the last token in its unit is no part of the sum.
template <class E>
void AddPages(const DecodeHeads<E>& run, const float* p, size_t stride, float* sums,
              PieceOrder<E>& ahead) {
  const size_t padded = PaddedHead(run.head_size), seen = run.start + 1;
  const size_t last = run.page_count() - 1;
  std::fill_n(sums, run.run * padded, 0.0f);
  const auto add = [&](size_t page, size_t h) HWY_ATTR {
    const size_t count = std::min(kPage, seen - page * kPage), whole = count / kTerms<E>;
    const E* const values = run.Values(page, h);
    const float* const factors = p + h * stride + page * (kPage / kTerms<E>);
    float* const sum = sums + h * padded;
    MultiplyUnits<E, 1, TileC::kAdd>(factors, 0, Units(values), padded, whole, sum, padded, padded,
                                     ahead.DistanceFrom(values));
    if (count % kTerms<E> == 0) return;
    MultiplyUnits<E, 1, TileC::kAdd, UnitPart::kFirstOfPair>(
        factors + whole, 0, Units(values) + whole * padded, padded, 1, sum, padded, padded,
        /*ahead=*/0);
  };
  for (size_t page = 0; page < last; ++page) {
    for (size_t h = 0; h < run.run; ++h) add(page, h);
  }
  StoreAndRead(
      run.run, [&](size_t h) HWY_ATTR { StoreValue(run, 0, h); }, [&](size_t h) { add(last, h); });
}

template <class E>
void OneToken(const DecodeHeads<E>& run) {
  const size_t size = run.head_size, padded = PaddedHead(size), seen = run.start + 1;
  const size_t stride = RoundUp(seen, kPage) + 16;
  E *keys, *queries;
  float *scores, *totals, *sums;
  const auto place = [&](ScratchPlan plan) {
    keys = plan.Take<E>(run.run * size);
    queries = plan.Take<E>(run.run * size);
    scores = plan.Take<float>(run.run * stride);
    totals = plan.Take<float>(run.run);
    sums = plan.Take<float>(run.run * padded);
    return plan.used();
  };
  place(ScratchPlan(ThreadScratch(place(ScratchPlan()))));
  RotateKeys(run, 0, keys);
  RotateQueries(run, 0, queries);
  PieceOrder<E> ahead(run);
  ahead.Skip(kAhead);
  ScorePages(run, queries, keys, scores, stride, ahead);
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
