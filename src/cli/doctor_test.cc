// doctor, completion and man as users call them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/run_program.h"

namespace denseformer {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DoctorCommand, ReportsTheMachine) {
  const ProgramResult result = RunProgram({"doctor", "--json", "--threads", "1"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["threads"], 1);
  ASSERT_EQ(json["gemm"].size(), 2u);
  EXPECT_EQ(json["gemm"][0]["dtype"], "fp32");
  EXPECT_GT(json["gemm"][0]["flops"].get<double>(), 0);
  EXPECT_GT(json["memory_bytes_per_second"].get<double>(), 0);
  for (const char* key :
       {"cpu", "features", "instructions", "cgroup_cpus", "cgroup_memory", "mpi", "advice"})
    EXPECT_TRUE(json.contains(key)) << key;
}

TEST(DoctorCommand, AdvisesAgainstTheSlowBackend) {
  const ProgramResult result =
      RunProgram({"doctor", "--threads", "1"}, "", "DENSEFORMER_GEMM=reference");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(Contains(result.out, "fp32 GEMM  reference: ")) << result.out;
  EXPECT_TRUE(Contains(result.out, "unset DENSEFORMER_GEMM")) << result.out;
}

TEST(ManCommand, HasEveryCommandAndItsOptions) {
  const ProgramResult result = RunProgram({"man"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* part :
       {".TH DENSEFORMER 1", ".SS denseformer data prepare", ".SS denseformer train",
        "\\fB\\-\\-format\\fR \\fInative|authors|huggingface\\fR", ".SH EXIT STATUS"}) {
    EXPECT_TRUE(Contains(result.out, part)) << part;
  }
}

TEST(CompletionCommand, WritesScripts) {
  const ProgramResult bash = RunProgram({"completion", "bash"}),
                      zsh = RunProgram({"completion", "zsh"});
  ASSERT_EQ(bash.status, 0) << bash.err;
  ASSERT_EQ(zsh.status, 0) << zsh.err;
  EXPECT_TRUE(Contains(bash.out, "complete -o default -F _denseformer denseformer"));
  EXPECT_TRUE(Contains(zsh.out, "#compdef denseformer"));
  EXPECT_TRUE(
      Contains(zsh.out, "'export:--format') compadd -- native authors huggingface; return"));
  EXPECT_EQ(RunProgram({"completion", "fish"}).status, 2);
}

}  // namespace
}  // namespace denseformer
