// The data in a Python pickle, by a machine that executes nothing.
//
// A pickle is a program for a stack machine that may ask for any function to be called. This
// machine knows a short list of names (pickle_globals.cc) and builds values that say what was asked
// for; any other name is an error that gives it. What belongs to optimizers, schedulers and random
// states is taken in as kOpaque, without content.
#ifndef DENSEFORMER_IO_PICKLE_H_
#define DENSEFORMER_IO_PICKLE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace denseformer {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,         // up to 64 bits
  kFloat,       //
  kText,        // str or bytes
  kTuple,       //
  kList,        //
  kDict,        // dict, OrderedDict, defaultdict: items are key, value, key, value, ...
  kGlobal,      // a name of the list
  kPersistent,  // a reference to data outside of the pickle; items[0] is its id
  kTensor,      // items are the arguments of torch._utils._rebuild_tensor_v2 (or _v3)
  kOpaque,      // something that is not needed here
};

// What a name of the list means.
enum class GlobalRole : uint8_t {
  kDictType,
  kRebuildTensor,
  kRebuildParameter,
  kSize,       // torch.Size: a tuple
  kStorage,    // torch.FloatStorage and its like
  kDtype,      // torch.float32 and its like
  kGetAttr,    // allowed on opaque values
  kOpaqueType  //
};

// The role of a name; throws kInvalid for one that is not in the list.
GlobalRole RoleOfGlobal(std::string_view module, std::string_view name, const std::string& where);

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  GlobalRole role = GlobalRole::kOpaqueType;  // of kGlobal
  int64_t number = 0;                         // of kInt and kBool
  double real = 0;                            // of kFloat
  std::string text;                           // of kText; "module.name" of kGlobal
  std::vector<uint32_t> items;                // indices of values
};

class Pickle {
 public:
  // Runs the program; `data` is not needed afterwards. kCorrupt where it is malformed or beyond the
  // limits, kInvalid where it asks for a name that is not in the list. `where` begins each message.
  Pickle(std::string_view data, const std::string& where);

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& at(uint32_t index) const { return values_[index]; }
  // The value of a text key of a kDict (the last one, as in Python); null where there is none.
  const PickleValue* Find(const PickleValue& dict, std::string_view key) const;

 private:
  friend class PickleMachine;
  std::deque<PickleValue> values_;
  uint32_t root_ = 0;
};

}  // namespace denseformer

#endif  // DENSEFORMER_IO_PICKLE_H_
