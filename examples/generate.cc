// Text from a trained model.
//
//   generate RUN PROMPT
#include <denseformer/generator.h>

#include <exception>
#include <iostream>
#include <stdexcept>

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::invalid_argument("expected the directory of a run and a prompt");
    denseformer::Generator generator(denseformer::LanguageModel::Load(argv[1]));
    denseformer::GenerateOptions options;
    options.max_tokens = 60;
    options.sampling.temperature = 0.8;
    std::cout << argv[2] << generator.Generate(argv[2], options).text << "\n";
  } catch (const std::exception& error) {
    std::cerr << "generate: " << error.what() << "\n";
    return 1;
  }
}
