// RUN/train.toml: the options of a run, and where its data are.
//
// The file is a configuration file with two additions: data_from_run, the path of the data from the
// directory of the run (data.path is absolute), so that a run and its data can move together; and a
// hash of the file as the last line (io/seal.h).
#ifndef DENSEFORMER_TRAIN_STORED_OPTIONS_H_
#define DENSEFORMER_TRAIN_STORED_OPTIONS_H_

#include <string>

#include "train/options.h"

namespace denseformer {

inline constexpr const char* kOptionsFile = "train.toml";

void WriteStoredOptions(const std::string& run, const TrainOptions& options);

// The options of a run. data.path is where the data are found now: at the stored absolute path, or
// at the stored path from the run; where they are at neither it is the absolute one. Throws
// kNotFound where there is no run to resume, with what to do instead.
TrainOptions ReadStoredOptions(const std::string& run);

// The directory of the data of a run, which exists; "" where the run does not say. Throws kNotFound
// that asks for --data where it is gone. `who` begins the message.
std::string FindStoredData(const std::string& run, const std::string& who);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_STORED_OPTIONS_H_
