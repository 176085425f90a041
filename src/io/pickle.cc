#include "io/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/error.h"

namespace denseformer {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;
constexpr size_t kMostValues = 2'000'000;
constexpr size_t kMostOpen = 1000;  // marks inside each other
constexpr size_t kMostName = 1000;
constexpr size_t kMostArguments = 16;

}  // namespace

// The stack machine. Values are immutable indices but for lists and dicts, which opcodes extend.
class PickleMachine {
 public:
  PickleMachine(std::string_view data, const std::string& where, Pickle& pickle)
      : data_(data), where_(where), values_(pickle.values_) {}

  uint32_t Run();

 private:
  using Kind = PickleKind;

  template <class... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    Throw(ErrorCode::kCorrupt, "{}: pickle, offset {}: {}", where_, opcode_at_,
          fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view Take(uint64_t size) {
    if (size > data_.size() - at_) Fail("{} bytes wanted, {} left", size, data_.size() - at_);
    at_ += size;
    return data_.substr(at_ - size, size);
  }
  template <class T>
  T Number() {
    T value;
    std::memcpy(&value, Take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view Line() {
    const size_t end = data_.find('\n', at_);
    if (end == std::string_view::npos || end - at_ > kMostName) Fail("a line without an end");
    const std::string_view line = Take(end - at_);
    ++at_;
    return line;
  }

  uint32_t New(Kind kind) {
    if (values_.size() >= kMostValues) Fail("more than {} values", kMostValues);
    values_.emplace_back().kind = kind;
    return static_cast<uint32_t>(values_.size() - 1);
  }
  PickleValue& Push(Kind kind) {
    stack_.push_back(New(kind));
    return values_[stack_.back()];
  }
  void PushInt(int64_t number) { Push(Kind::kInt).number = number; }
  void PushText(uint64_t size) { Push(Kind::kText).text = Take(size); }
  // Elements of the stack above the last mark, or above its bottom.
  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }
  uint32_t Pop() {
    if (stack_.size() <= Floor()) Fail("the stack is empty");
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  uint32_t Top() const {
    if (stack_.size() <= Floor()) Fail("the stack is empty");
    return stack_.back();
  }
  std::vector<uint32_t> PopToMark() {
    if (marks_.empty()) Fail("no mark on the stack");
    const std::vector<uint32_t> items(stack_.begin() + marks_.back(), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void Tuple(size_t n) {
    std::vector<uint32_t> items(n);
    for (size_t i = n; i-- > 0;) items[i] = Pop();
    Push(Kind::kTuple).items = std::move(items);
  }
  void Long(uint64_t size);
  void Append(const std::vector<uint32_t>& items);
  void SetItems(const std::vector<uint32_t>& items);
  void Global(std::string_view module, std::string_view name);
  void StackGlobal();
  void Reduce();
  void NewObject();
  void Build();
  void Memoize(uint32_t key) {
    if (memo_.size() >= kMostValues) Fail("more than {} values in the memo", kMostValues);
    memo_[key] = Top();
  }
  void Recall(uint32_t key);
  void Step(unsigned char opcode);

  std::string_view data_;
  const std::string& where_;
  std::deque<PickleValue>& values_;
  size_t at_ = 0, opcode_at_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint32_t, uint32_t> memo_;
};

void PickleMachine::Long(uint64_t size) {
  const std::string_view bytes = Take(size);
  if (size > 8) {
    Push(Kind::kOpaque);
    return;
  }
  uint64_t value = size > 0 && (bytes.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
  std::memcpy(&value, bytes.data(), size);
  PushInt(std::bit_cast<int64_t>(value));
}

void PickleMachine::Append(const std::vector<uint32_t>& items) {
  PickleValue& list = values_[Top()];
  if (list.kind == Kind::kOpaque) return;
  if (list.kind != Kind::kList) Fail("append to what is no list");
  list.items.insert(list.items.end(), items.begin(), items.end());
}

void PickleMachine::SetItems(const std::vector<uint32_t>& items) {
  PickleValue& dict = values_[Top()];
  if (items.size() % 2 != 0) Fail("a key without a value");
  if (dict.kind == Kind::kOpaque) return;
  if (dict.kind != Kind::kDict) Fail("items for what is no dict");
  dict.items.insert(dict.items.end(), items.begin(), items.end());
}

void PickleMachine::Global(std::string_view module, std::string_view name) {
  const GlobalRole role = RoleOfGlobal(module, name, where_);
  PickleValue& value = Push(Kind::kGlobal);
  value.role = role;
  value.text = fmt::format("{}.{}", module, name);
}

void PickleMachine::StackGlobal() {
  const PickleValue &name = values_[Pop()], &module = values_[Pop()];
  if (name.kind != Kind::kText || module.kind != Kind::kText || name.text.size() > kMostName ||
      module.text.size() > kMostName) {
    Fail("a name that is no text");
  }
  Global(module.text, name.text);
}

// callable(*arguments): what it would be, without any call.
void PickleMachine::Reduce() {
  const uint32_t arguments_at = Pop();
  const PickleValue &arguments = values_[arguments_at], &callable = values_[Pop()];
  if (callable.kind != Kind::kGlobal || arguments.kind != Kind::kTuple) {
    Fail("a call of what is no name, or without a tuple of arguments");
  }
  const std::vector<uint32_t>& items = arguments.items;
  switch (callable.role) {
    case GlobalRole::kDictType:
      Push(Kind::kDict);
      return;
    case GlobalRole::kRebuildTensor:
      // The copy must be small: a pickle can ask for it again and again.
      if (items.size() > kMostArguments) Fail("{} of {} arguments", callable.text, items.size());
      Push(Kind::kTensor).items = items;
      return;
    case GlobalRole::kRebuildParameter:
      if (items.empty()) Fail("{} without arguments", callable.text);
      stack_.push_back(items[0]);
      return;
    case GlobalRole::kSize:
      if (items.size() != 1) Fail("torch.Size of {} arguments", items.size());
      stack_.push_back(items[0]);
      return;
    case GlobalRole::kGetAttr: {
      const PickleValue* object = items.size() == 2 ? &values_[items[0]] : nullptr;
      const bool inert =
          object != nullptr &&
          (object->kind == Kind::kOpaque ||
           (object->kind == Kind::kGlobal && object->text.starts_with("torch.optim.")));
      if (!inert) {
        Throw(ErrorCode::kInvalid,
              "{}: the pickle asks for '{}' of something else than an optimizer; refused, and "
              "nothing was executed",
              where_, callable.text);
      }
      Push(Kind::kOpaque);
      return;
    }
    case GlobalRole::kStorage:
    case GlobalRole::kDtype:
    case GlobalRole::kOpaqueType:
      Push(Kind::kOpaque);
      return;
  }
}

void PickleMachine::NewObject() {
  const PickleValue &arguments = values_[Pop()], &type = values_[Pop()];
  if (type.kind != Kind::kGlobal || arguments.kind != Kind::kTuple) {
    Fail("a new object of what is no name");
  }
  Push(type.role == GlobalRole::kDictType ? Kind::kDict : Kind::kOpaque);
}

// object.__setstate__(state): the state of a dict is its attributes (_metadata), of no use here.
void PickleMachine::Build() {
  Pop();
  const Kind kind = values_[Top()].kind;
  if (kind != Kind::kDict && kind != Kind::kOpaque && kind != Kind::kTensor) {
    Fail("a state for what has none");
  }
}

void PickleMachine::Recall(uint32_t key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) Fail("memo {} is empty", key);
  stack_.push_back(found->second);
}

void PickleMachine::Step(unsigned char opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (const int version = Number<uint8_t>(); version < 2 || version > 5) {
        Fail("protocol {}, expected 2 to 5", version);
      }
      return;
    case 0x95:  // FRAME
      Number<uint64_t>();
      return;
    case '(':
      if (marks_.size() >= kMostOpen) Fail("more than {} marks", kMostOpen);
      marks_.push_back(stack_.size());
      return;
    case '0':  // POP also takes a mark
      if (!marks_.empty() && stack_.size() == marks_.back()) {
        marks_.pop_back();
      } else {
        Pop();
      }
      return;
    case '1':
      PopToMark();
      return;
    case '2':
      stack_.push_back(Top());
      return;
    case 'N':
      Push(Kind::kNone);
      return;
    case 0x88:
      Push(Kind::kBool).number = 1;
      return;
    case 0x89:
      Push(Kind::kBool);
      return;
    case 'J':
      PushInt(Number<int32_t>());
      return;
    case 'K':
      PushInt(Number<uint8_t>());
      return;
    case 'M':
      PushInt(Number<uint16_t>());
      return;
    case 0x8a:
      Long(Number<uint8_t>());
      return;
    case 0x8b:
      Long(Number<uint32_t>());
      return;
    case 'G':
      Push(Kind::kFloat).real = std::bit_cast<double>(__builtin_bswap64(Number<uint64_t>()));
      return;
    case 'U':   // SHORT_BINSTRING
    case 'C':   // SHORT_BINBYTES
    case 0x8c:  // SHORT_BINUNICODE
      PushText(Number<uint8_t>());
      return;
    case 'T':  // BINSTRING
    case 'B':  // BINBYTES
    case 'X':  // BINUNICODE
      PushText(Number<uint32_t>());
      return;
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
      PushText(Number<uint64_t>());
      return;
    case ')':
      Tuple(0);
      return;
    case 0x85:
    case 0x86:
    case 0x87:
      Tuple(opcode - 0x84u);
      return;
    case 't': {
      std::vector<uint32_t> items = PopToMark();
      Push(Kind::kTuple).items = std::move(items);
      return;
    }
    case 'l': {
      std::vector<uint32_t> items = PopToMark();
      Push(Kind::kList).items = std::move(items);
      return;
    }
    case ']':
      Push(Kind::kList);
      return;
    case '}':
      Push(Kind::kDict);
      return;
    case 'd': {
      const std::vector<uint32_t> items = PopToMark();
      Push(Kind::kDict);
      SetItems(items);
      return;
    }
    case 'a': {
      const uint32_t item = Pop();
      Append({item});
      return;
    }
    case 'e':
      Append(PopToMark());
      return;
    case 's': {
      const uint32_t value = Pop(), key = Pop();
      SetItems({key, value});
      return;
    }
    case 'u':
      SetItems(PopToMark());
      return;
    case 0x8f:  // EMPTY_SET
      Push(Kind::kOpaque);
      return;
    case 0x90:  // ADDITEMS
    case 0x91:  // FROZENSET
      PopToMark();
      if (opcode == 0x91) Push(Kind::kOpaque);
      return;
    case 'q':
      Memoize(Number<uint8_t>());
      return;
    case 'r':
      Memoize(Number<uint32_t>());
      return;
    case 0x94:
      Memoize(static_cast<uint32_t>(memo_.size()));
      return;
    case 'h':
      Recall(Number<uint8_t>());
      return;
    case 'j':
      Recall(Number<uint32_t>());
      return;
    case 'c': {
      const std::string_view module = Line();
      Global(module, Line());
      return;
    }
    case 'i': {  // INST: a call
      const std::string_view module = Line(), name = Line();
      Throw(ErrorCode::kInvalid,
            "{}: the pickle asks for a call of '{}.{}'; refused, and nothing was executed", where_,
            module, name);
    }
    case 0x93:
      StackGlobal();
      return;
    case 'R':
      Reduce();
      return;
    case 0x81:
      NewObject();
      return;
    case 'b':
      Build();
      return;
    case 'Q': {  // BINPERSID
      const uint32_t id = Pop();
      Push(Kind::kPersistent).items = {id};
      return;
    }
    default:
      Fail("opcode 0x{:02x} is not one that torch.save writes", opcode);
  }
}

uint32_t PickleMachine::Run() {
  if (data_.size() > kMostBytes) Fail("{} bytes, expected at most {}", data_.size(), kMostBytes);
  for (;;) {
    opcode_at_ = at_;
    const auto opcode = Number<uint8_t>();
    if (opcode == '.') break;
    Step(opcode);
    if (stack_.size() > kMostValues) Fail("more than {} values on the stack", kMostValues);
  }
  const uint32_t root = Pop();
  if (!stack_.empty() || !marks_.empty()) Fail("{} values left on the stack", stack_.size());
  if (at_ != data_.size()) Fail("{} bytes behind the end", data_.size() - at_);
  return root;
}

Pickle::Pickle(std::string_view data, const std::string& where) {
  root_ = PickleMachine(data, where, *this).Run();
}

const PickleValue* Pickle::Find(const PickleValue& dict, std::string_view key) const {
  for (size_t i = dict.items.size(); i >= 2; i -= 2) {
    const PickleValue& candidate = values_[dict.items[i - 2]];
    if (candidate.kind == PickleKind::kText && candidate.text == key) return &at(dict.items[i - 1]);
  }
  return nullptr;
}

}  // namespace denseformer
