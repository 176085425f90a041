// Three prompts that arrive at different times share one model: each gets one token per step, and
// the same tokens as if it were alone. Prints the texts in the order in which they end.
//
//   engine RUN PROMPT PROMPT PROMPT
#include <denseformer/engine.h>

#include <cstdio>
#include <exception>
#include <map>
#include <string>

using denseformer::DecodeEngine;
using denseformer::EngineEvent;
using denseformer::LanguageModel;
using denseformer::SequenceId;
using denseformer::SequenceRequest;

namespace {

constexpr int kStepsApart = 3;

void Run(char** arguments) {
  const LanguageModel model = LanguageModel::Load(arguments[0]);
  DecodeEngine engine = DecodeEngine::Create(model);
  std::map<SequenceId, std::string> texts;
  int arrived = 0;
  for (int step = 0; arrived < 3 || !engine.idle(); ++step) {
    if (step % kStepsApart == 0 && arrived < 3) {  // the next one comes, whatever runs already
      SequenceRequest request;
      const std::string prompt = arguments[1 + arrived++];
      request.prompt = model.tokenizer().Encode(prompt);
      request.max_tokens = 12;
      request.sampling.temperature = 0;
      texts[engine.Add(request)] = prompt;
    }
    for (const EngineEvent& event : engine.Step()) {
      std::string& text = texts[event.id];
      if (event.token) text += model.tokenizer().TokenBytes(event.token->chosen.id);
      if (event.finish) std::printf("%s: %s\n", FinishReasonName(*event.finish), text.c_str());
      if (!event.error.empty()) std::fprintf(stderr, "engine: %s\n", event.error.c_str());
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::fprintf(stderr, "engine: expected RUN PROMPT PROMPT PROMPT\n");
    return 2;
  }
  try {
    Run(arguments + 1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "engine: %s\n", error.what());
    return 1;
  }
}
