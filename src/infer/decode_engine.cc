// The scheduler of many sequences over one model.
//
// A sequence waits, then runs: it computes the tokens it knows but has not computed (its prompt, or
// what a slid window keeps), then generates one token per step. It is admitted when the pages of
// its longest possible text can be set aside, so that a running sequence never lacks memory and
// none has to be evicted. Finished sequences keep their pages as reusable prefixes until others
// need the memory, the oldest first.
#include <algorithm>
#include <deque>
#include <list>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "denseformer/engine.h"
#include "infer/language_model.h"
#include "infer/sampler.h"
#include "model/decode.h"

namespace denseformer {
namespace {

void CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    Throw(ErrorCode::kUsage, "{}: got {}, expected {} to {}", name, value, low, high);
  }
}

// Tokens that must be saved for a sequence to wait while another computes a common prefix.
constexpr int64_t kWorthWaiting = 16;

int64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin()).first -
         a.begin();
}

struct Sequence {
  Sequence(SequenceId number, SequenceRequest asked, KvPool& pool)
      : id(number),
        request(std::move(asked)),
        sampler(request.sampling, request.sample),
        tokens(request.prompt),
        cache(pool) {}

  SequenceId id;
  SequenceRequest request;
  Sampler sampler;
  std::vector<int32_t> tokens;  // prompt and generated
  int64_t window = 0;           // the first of them that the cache holds
  KvSequence cache;
  int64_t most_pages = 0;  // that it may come to hold
  bool slides = false;     // its window may slide: its pages are never shared, for it gives them up
  int generated = 0;
  EngineEvent event;

  // The tokens that its cache holds or will hold, and those not computed yet.
  std::span<const int32_t> known() const {
    return std::span<const int32_t>(tokens).subspan(static_cast<size_t>(window));
  }
  int64_t missing() const { return static_cast<int64_t>(known().size()) - cache.length(); }
  bool wants_prompt_logprob(int64_t position) const {
    return request.prompt_logprobs >= 0 && position >= request.prompt_logprobs_begin &&
           position < static_cast<int64_t>(request.prompt.size());
  }
};

// Keys and values of a finished sequence.
struct Prefix {
  std::vector<int32_t> tokens;
  KvSequence cache;
};

// A row whose logits are wanted, and what for.
struct WantedRow {
  Sequence* sequence;
  int64_t position;  // of the token that the logits predict
  bool sample;       // choose it, or else it is a token of the prompt
};

}  // namespace

void EngineOptions::Validate() const {
  CheckRange("max_rows", max_rows, 1, 1 << 16);
  CheckRange("max_sequences", max_sequences, 1, max_rows);
  CheckRange("memory_bytes", memory_bytes, 0, INT64_MAX);
  CheckRange("kept_prefixes", kept_prefixes, 0, 1 << 20);
}

void SequenceRequest::Validate() const {
  sampling.Validate();
  CheckRange("max_tokens", max_tokens, 0, 1 << 30);
  CheckRange("logprobs", logprobs, -1, 1 << 24);
  CheckRange("prompt_logprobs", prompt_logprobs, -1, 1 << 24);
  CheckRange("prompt_logprobs_begin", prompt_logprobs_begin, 1, INT64_MAX);
}

struct DecodeEngine::Impl {
  Impl(LanguageModel language_model, const EngineOptions& engine_options, int64_t most_pages)
      : language(std::move(language_model)),
        model(language.impl().model),
        options(engine_options),
        pool(model.config(), model.compute(), most_pages) {}

  LanguageModel language;
  const Model& model;
  EngineOptions options;
  KvPool pool;
  std::optional<Activations> activations;
  std::deque<Sequence> waiting;
  std::list<Sequence> running;  // in order of arrival
  std::list<Prefix> prefixes;   // the one not used for the longest time first
  SequenceId next_id = 1;
  EngineStats counts;

  int64_t context() const { return model.config().seq_len; }

  // The ids that may be chosen: the embedding can have more rows than there are tokens.
  size_t choices() const {
    return static_cast<size_t>(
        std::min(model.config().vocab_size, language.tokenizer().vocab_size()));
  }

  void CheckPrompt(const SequenceRequest& request) const {
    const int64_t length = static_cast<int64_t>(request.prompt.size());
    if (length > context() && request.context == ContextPolicy::kStop) {
      Throw(ErrorCode::kInvalid,
            "prompt: {} tokens, but the model's context has {}; shorten it, or slide the window "
            "(--context slide)",
            length, context());
    }
    if (length > context() && request.prompt_logprobs >= 0) {
      Throw(ErrorCode::kInvalid,
            "prompt: {} tokens, but the model's context has {}; log-probabilities of a prompt need "
            "all of it in the context",
            length, context());
    }
    for (int64_t n = 0; n < length; ++n) {
      const int32_t token = request.prompt[static_cast<size_t>(n)];
      if (token < 0 || token >= model.config().vocab_size) {
        Throw(ErrorCode::kInvalid,
              "prompt: token {} at position {}, expected 0 to {} (the model's vocabulary)", token,
              n, model.config().vocab_size - 1);
      }
    }
  }

  // Tokens that the cache of a sequence may come to hold: the last one generated is never computed.
  int64_t MostTokens(const SequenceRequest& request) const {
    const int64_t length = static_cast<int64_t>(request.prompt.size());
    return std::min(context(), length + std::max(0, request.max_tokens - 1));
  }

  int64_t SetAsidePages() const {
    int64_t pages = 0;
    for (const Sequence& s : running) pages += s.most_pages - s.cache.held_pages();
    return pages;
  }

  // Moves waiting sequences to the running ones while there is room, in order.
  void Admit() {
    while (!waiting.empty() && static_cast<int>(running.size()) < options.max_sequences) {
      if (!AdmitFirst()) return;
    }
  }

  // The cache with the longest reusable prefix of `sequence`, and its length.
  struct Match {
    const KvSequence* cache = nullptr;
    int64_t tokens = 0;
    std::list<Prefix>::iterator prefix;
  };

  bool AdmitFirst() {
    Sequence& sequence = waiting.front();
    const std::span<const int32_t> known = sequence.known();
    // The last token is always computed, for its logits; so are those with wanted
    // log-probabilities.
    int64_t most = static_cast<int64_t>(known.size()) - 1;
    if (sequence.request.prompt_logprobs >= 0) {
      most = std::min(most, sequence.request.prompt_logprobs_begin - 1);
    }
    Match best{nullptr, 0, prefixes.end()};
    const auto consider = [&](const KvSequence& cache, std::span<const int32_t> tokens) {
      const int64_t common = std::min({CommonPrefix(known, tokens), most, cache.length()});
      if (common <= best.tokens) return false;
      best.cache = &cache;
      best.tokens = common;
      return true;
    };
    if (!sequence.slides) {
      for (auto it = prefixes.begin(); it != prefixes.end(); ++it) {
        if (consider(it->cache, it->tokens)) best.prefix = it;
      }
      for (const Sequence& other : running) {
        if (!other.slides && consider(other.cache, other.known())) best.prefix = prefixes.end();
      }
      // A running sequence is still computing what this one could reuse: wait for it.
      for (const Sequence& other : running) {
        const int64_t common = std::min(CommonPrefix(known, other.known()), most);
        if (!other.slides && common > other.cache.length() &&
            common >= best.tokens + kWorthWaiting) {
          return false;
        }
      }
    }
    const int64_t needed = sequence.most_pages - best.tokens / kKvPageTokens + SetAsidePages();
    if (best.prefix != prefixes.end()) {  // the one in use is the last to be evicted
      prefixes.splice(prefixes.end(), prefixes, best.prefix);
    }
    while (pool.free_pages() < needed && !prefixes.empty()) {
      if (prefixes.size() == 1 && best.prefix != prefixes.end()) break;
      prefixes.pop_front();
    }
    if (pool.free_pages() < needed && best.prefix != prefixes.end()) {
      // Its own prefix is in the way: compute everything.
      prefixes.clear();
      best = {nullptr, 0, prefixes.end()};
      if (pool.free_pages() < sequence.most_pages + SetAsidePages()) return false;
    } else if (pool.free_pages() < needed) {
      return false;
    }
    if (best.tokens > 0) {
      sequence.cache.Share(*best.cache, best.tokens);
      counts.reused_tokens += static_cast<uint64_t>(best.tokens);
    }
    running.push_back(std::move(sequence));
    waiting.pop_front();
    return true;
  }

  // The rows of a step: which tokens of which sequences, and where logits are wanted.
  struct Plan {
    std::vector<DecodeSequence> sequences;
    std::vector<int64_t> rows;
    std::vector<WantedRow> wanted;
    int64_t total = 0;
  };

  void Schedule(Sequence& s, int64_t count, Plan& plan) {
    const int64_t begin = s.cache.length();
    for (int64_t n = 0; n < count; ++n) {
      const int64_t position = s.window + begin + n + 1;  // the token after row n
      const bool last = n + 1 == s.missing();
      if (!(last ? s.request.max_tokens > s.generated : s.wants_prompt_logprob(position))) continue;
      plan.rows.push_back(plan.total + n);
      plan.wanted.push_back({&s, position, last});
    }
    plan.sequences.push_back(
        {&s.cache, s.known().subspan(static_cast<size_t>(begin), static_cast<size_t>(count))});
    plan.total += count;
    if (s.generated == 0) counts.prompt_tokens += static_cast<uint64_t>(count);
  }

  Plan MakePlan() {
    Plan plan;
    int64_t budget = options.max_rows;
    for (Sequence& s : running) {
      if (s.missing() != 1) continue;
      Schedule(s, 1, plan);
      --budget;
    }
    for (Sequence& s : running) {
      if (s.missing() <= 1 || budget == 0) continue;
      const int64_t count = std::min(budget, s.missing());
      Schedule(s, count, plan);
      budget -= count;
    }
    return plan;
  }

  // Takes what one row of logits says; rows of one sequence come in order, on one thread.
  void Take(const WantedRow& row, std::span<const float> logits) {
    Sequence& s = *row.sequence;
    if (s.event.finish) return;  // it failed in an earlier chunk of the head
    if (!row.sample) {
      const int32_t token = s.tokens[static_cast<size_t>(row.position)];
      s.event.prompt_logprobs.push_back(
          TokenLogprobs(logits, choices(), token, s.request.prompt_logprobs));
      return;
    }
    const int32_t token =
        s.sampler.Choose(logits.first(choices()), s.tokens, static_cast<uint64_t>(s.generated));
    s.event.token = s.request.logprobs >= 0
                        ? TokenLogprobs(logits, choices(), token, s.request.logprobs)
                        : GeneratedToken{.chosen = {.id = token}, .likeliest = {}};
    s.tokens.push_back(token);
    ++s.generated;
  }

  void TakeRows(const Plan& plan, int64_t first, const Tensor& logits) {
    // Rows of a chunk that belong to one sequence are consecutive: they go to one thread, in order.
    std::vector<int64_t> begins;
    for (int64_t r = 0; r < logits.rows(); ++r) {
      const WantedRow* const rows = plan.wanted.data() + first;
      if (r == 0 || rows[r].sequence != rows[r - 1].sequence) begins.push_back(r);
    }
    begins.push_back(logits.rows());
    ParallelForEach(static_cast<int64_t>(begins.size()) - 1, [&](int64_t n, int) {
      const WantedRow* row = nullptr;
      try {
        for (int64_t r = begins[static_cast<size_t>(n)]; r < begins[static_cast<size_t>(n) + 1];
             ++r) {
          row = &plan.wanted[static_cast<size_t>(first + r)];
          Take(*row, {logits.f32() + r * logits.cols(), static_cast<size_t>(logits.cols())});
        }
      } catch (const Error& error) {
        row->sequence->event.finish = FinishReason::kFailed;
        row->sequence->event.error = error.what();
      }
    });
  }

  // Why a sequence ends after this step, if it does; slides its window where that is full.
  void Conclude(Sequence& s) {
    if (s.event.finish || s.missing() > 1) return;  // failed, or the prompt is not computed yet
    if (s.missing() == 1 && s.event.token && s.request.stop_at_end_of_text &&
        s.tokens.back() == language.tokenizer().end_of_text()) {
      s.event.finish = FinishReason::kEndOfText;
    } else if (s.generated >= s.request.max_tokens) {
      s.event.finish = FinishReason::kLength;
    } else if (static_cast<int64_t>(s.known().size()) > context()) {
      if (s.request.context == ContextPolicy::kStop) {
        s.event.finish = FinishReason::kContext;
        return;
      }
      s.window = static_cast<int64_t>(s.tokens.size()) - std::max<int64_t>(1, context() / 2);
      s.cache.SetLength(0);
    }
  }

  // A finished sequence leaves its keys and values for others.
  void Keep(Sequence& s) {
    if (options.kept_prefixes == 0 || s.cache.length() == 0) return;
    if (static_cast<int>(prefixes.size()) >= options.kept_prefixes) prefixes.pop_front();
    const std::span<const int32_t> held = s.known().first(static_cast<size_t>(s.cache.length()));
    prefixes.push_back({{held.begin(), held.end()}, std::move(s.cache)});
  }

  std::vector<EngineEvent> Collect() {
    std::vector<EngineEvent> events;
    for (auto s = running.begin(); s != running.end();) {
      Conclude(*s);
      const bool finished = s->event.finish.has_value();
      if (finished || s->event.token || !s->event.prompt_logprobs.empty()) {
        counts.generated_tokens += s->event.token ? 1 : 0;
        s->event.id = s->id;
        events.push_back(std::exchange(s->event, {}));
      }
      if (finished) {
        if (events.back().finish != FinishReason::kFailed) Keep(*s);
        s = running.erase(s);
      } else {
        ++s;
      }
    }
    std::sort(events.begin(), events.end(),
              [](const EngineEvent& a, const EngineEvent& b) { return a.id < b.id; });
    return events;
  }
};

DecodeEngine DecodeEngine::Create(LanguageModel model, const EngineOptions& options) {
  options.Validate();
  const Model& weights = model.impl().model;
  const ModelConfig& config = weights.config();
  const DType compute = weights.compute();
  int64_t pages = KvPagesFor(config.seq_len) * options.max_sequences;
  if (options.memory_bytes > 0) {
    const size_t limit = static_cast<size_t>(options.memory_bytes);
    const size_t buffers = Storage::TakenBytes(
        Activations::Bytes(config, compute, options.max_rows, 1, ModelUse::kInference));
    const size_t least = buffers + KvPool::TakenBytes(config, compute, 1);
    if (limit < least) {
      const size_t page = KvPool::PageBytes(config, compute);
      Throw(ErrorCode::kUsage,
            "memory_bytes: got {}, but the buffers of a step of {} rows take {} bytes and one page "
            "of keys and values {}; raise it or lower max_rows",
            limit, options.max_rows, least - page, page);
    }
    pages = std::min(pages, KvPool::PagesWithin(config, compute, limit - buffers));
  }
  return DecodeEngine(std::make_unique<Impl>(std::move(model), options, pages));
}

DecodeEngine::DecodeEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DecodeEngine::~DecodeEngine() = default;
DecodeEngine::DecodeEngine(DecodeEngine&&) noexcept = default;
DecodeEngine& DecodeEngine::operator=(DecodeEngine&&) noexcept = default;

SequenceId DecodeEngine::Add(SequenceRequest request) {
  Impl& e = *impl_;
  request.Validate();
  if (request.prompt.empty()) {
    if (e.language.tokenizer().end_of_text() < 0) {
      Throw(ErrorCode::kInvalid,
            "prompt: empty, and the tokenizer has no end-of-text token to begin with; give at "
            "least one character");
    }
    request.prompt.push_back(e.language.tokenizer().end_of_text());
  }
  e.CheckPrompt(request);
  const int64_t pages = KvPagesFor(e.MostTokens(request));
  if (pages > e.pool.most_pages()) {
    const int64_t page =
        static_cast<int64_t>(KvPool::PageBytes(e.model.config(), e.model.compute()));
    Throw(ErrorCode::kInvalid,
          "sequence of up to {} tokens: its keys and values take {} bytes, but the engine has {} "
          "for all sequences; shorten the prompt or max_tokens, or give the engine more memory",
          e.MostTokens(request), pages * page, e.pool.most_pages() * page);
  }
  Sequence& s = e.waiting.emplace_back(e.next_id++, std::move(request), e.pool);
  s.most_pages = pages;
  s.slides = s.request.context == ContextPolicy::kSlide &&
             static_cast<int64_t>(s.tokens.size()) + s.request.max_tokens > e.context();
  if (static_cast<int64_t>(s.tokens.size()) > e.context()) {
    s.window = static_cast<int64_t>(s.tokens.size()) - std::max<int64_t>(1, e.context() / 2);
  }
  return s.id;
}

bool DecodeEngine::Cancel(SequenceId id) {
  const auto is = [id](const Sequence& s) { return s.id == id; };
  const auto found = std::find_if(impl_->running.begin(), impl_->running.end(), is);
  if (found == impl_->running.end()) return std::erase_if(impl_->waiting, is) > 0;
  impl_->Keep(*found);
  impl_->running.erase(found);
  return true;
}

std::vector<EngineEvent> DecodeEngine::Step() {
  Impl& e = *impl_;
  e.Admit();
  if (e.running.empty()) {
    DF_CHECK(e.waiting.empty());
    return {};
  }
  if (!e.activations) e.activations.emplace(DecodeActivations(e.model, e.options.max_rows));
  const Impl::Plan plan = e.MakePlan();
  Decode(e.model, plan.sequences, plan.rows, *e.activations,
         [&](int64_t first, const Tensor& logits) { e.TakeRows(plan, first, logits); });
  ++e.counts.steps;
  return e.Collect();
}

bool DecodeEngine::idle() const { return impl_->waiting.empty() && impl_->running.empty(); }

EngineStats DecodeEngine::stats() const {
  const Impl& e = *impl_;
  const int64_t page = static_cast<int64_t>(KvPool::PageBytes(e.model.config(), e.model.compute()));
  EngineStats stats = e.counts;
  stats.running = static_cast<int>(e.running.size());
  stats.waiting = static_cast<int>(e.waiting.size());
  stats.cache_bytes = (e.pool.most_pages() - e.pool.free_pages()) * page;
  stats.cache_limit_bytes = e.pool.most_pages() * page;
  return stats;
}

const LanguageModel& DecodeEngine::model() const { return impl_->language; }

}  // namespace denseformer
