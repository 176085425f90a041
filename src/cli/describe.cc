#include "cli/describe.h"

#include "base/text.h"

namespace denseformer {
namespace {

// "TEXT:{fp32,bf16}": the name of the type, then what its checks say.
void DescribeType(const std::string& type, OptionText& text) {
  text.value = type.substr(0, type.find(':'));
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open != std::string::npos && close != std::string::npos && open < close)
    text.choices = Split(type.substr(open + 1, close - open - 1), ',');
}

OptionText DescribeOption(const CLI::Option& option) {
  OptionText text;
  text.positional = option.get_positional() && option.get_lnames().empty();
  if (text.positional) text.names.push_back(option.get_name(true));
  for (const std::string& name : NamesOf(option)) text.names.push_back(name);
  if (option.get_items_expected_max() > 0) DescribeType(option.get_type_name(), text);
  text.help = option.get_description();
  text.initial = option.get_default_str();
  return text;
}

}  // namespace

std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) {
    // An older spelling of --output, which is taken but not shown.
    if (name != "out") names.push_back("--" + name);
  }
  return names;
}

CommandText DescribeCommand(const CLI::App& app, const std::string& path) {
  CommandText text;
  text.path = path;
  text.help = app.get_description();
  text.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options())
    text.options.push_back(DescribeOption(*option));
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
    text.children.push_back(
        DescribeCommand(*child, path.empty() ? child->get_name() : path + " " + child->get_name()));
  }
  return text;
}

const CLI::App& RootOf(const CLI::App& app) {
  const CLI::App* root = &app;
  while (root->get_parent() != nullptr) root = root->get_parent();
  return *root;
}

}  // namespace denseformer
