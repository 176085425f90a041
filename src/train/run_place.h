// Where a run may begin, and where it resumes.
#ifndef DENSEFORMER_TRAIN_RUN_PLACE_H_
#define DENSEFORMER_TRAIN_RUN_PLACE_H_

#include <cstdint>
#include <string>

namespace denseformer {

// Refuses to begin where a run is (kUsage), and to resume where steps were recorded but no
// checkpoint is left (kCorrupt).
void CheckPlace(const std::string& run, bool resume);

// Checkpoints after `step` are damaged, or the run would resume from them. Under another name none
// of them counts as the newest one when old ones are removed.
void PutDamagedAside(const std::string& run, int64_t step);

}  // namespace denseformer

#endif  // DENSEFORMER_TRAIN_RUN_PLACE_H_
