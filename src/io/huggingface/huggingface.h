// A directory that Hugging Face transformers loads with from_pretrained(DIR,
// trust_remote_code=True) of AutoModelForCausalLM and AutoTokenizer:
//
//   config.json              fields of ModelConfig, the sources of every average, auto_map
//   modeling_denseformer.py  the model in PyTorch, one file for every topology
//   model.safetensors        the parameters under their own names
//   generation_config.json   ids of special tokens
//   tokenizer.json, tokenizer_config.json    where the run has a tokenizer
//
// denseformer import reads it back.
#ifndef DENSEFORMER_IO_HUGGINGFACE_HUGGINGFACE_H_
#define DENSEFORMER_IO_HUGGINGFACE_HUGGINGFACE_H_

#include <string>
#include <string_view>

#include "io/checkpoint.h"
#include "model/model.h"

namespace denseformer {

// The text of modeling_denseformer.py.
extern const std::string_view kHuggingFaceModel;

// `tokenizer` is the text of tokenizer.json or "". The tensors point into the model.
RunContent HuggingFaceContent(const Model& model, StoredType type, const std::string& tokenizer);

}  // namespace denseformer

#endif  // DENSEFORMER_IO_HUGGINGFACE_HUGGINGFACE_H_
