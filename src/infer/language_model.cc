#include "infer/language_model.h"

#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "io/run_directory.h"
#include "model/forward.h"

namespace denseformer {

LanguageModel MakeLanguageModel(Model model, Tokenizer tokenizer) {
  return LanguageModel(std::make_shared<const LanguageModel::Impl>(
      LanguageModel::Impl{std::move(model), std::move(tokenizer)}));
}

LanguageModel::LanguageModel(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

LanguageModel LanguageModel::Load(const std::string& directory, Precision precision) {
  Model model = LoadFrozen(directory, precision);
  // A checkpoint of its own has none; that of its run is right.
  const std::string beside = directory + "/tokenizer.json";
  const std::string path = FileExists(beside) ? beside : FindRun(directory) + "/tokenizer.json";
  if (!FileExists(path)) {
    Throw(ErrorCode::kNotFound,
          "{}: missing, so text cannot become tokens; copy the tokenizer of the training data "
          "there",
          path);
  }
  Tokenizer tokenizer = Tokenizer::Load(path);
  if (tokenizer.vocab_size() > model.config().vocab_size) {
    Throw(ErrorCode::kInvalid,
          "{}: the tokenizer has {} tokens, but the model only {}; they do not belong together",
          directory, tokenizer.vocab_size(), model.config().vocab_size);
  }
  return MakeLanguageModel(std::move(model), std::move(tokenizer));
}

const ModelConfig& LanguageModel::config() const { return impl_->model.config(); }
const Tokenizer& LanguageModel::tokenizer() const { return impl_->tokenizer; }
int64_t LanguageModel::parameter_count() const { return impl_->model.table().count(); }

Precision LanguageModel::precision() const {
  switch (impl_->model.format()) {
    case WeightFormat::kF32:
      return Precision::kFp32;
    case WeightFormat::kBF16:
      return Precision::kBf16;
    case WeightFormat::kInt8:
      return Precision::kInt8;
  }
  DF_CHECK(false);
}

std::vector<float> LanguageModel::Logits(std::span<const int32_t> tokens) const {
  const int64_t length = static_cast<int64_t>(tokens.size()), vocab = config().vocab_size;
  const Batch batch{tokens, {}, 1, length};
  CheckBatch(impl_->model, batch);
  std::vector<float> logits(static_cast<size_t>(length * vocab));
  Activations activations(impl_->model, 1, length, ModelUse::kInference);
  ForwardLogits(impl_->model, batch, activations, Tensor(logits.data(), {length, vocab}));
  return logits;
}

}  // namespace denseformer
