// A reference to a callable: as std::function for arguments, without owning and without allocating.
// The callable must outlive the call it is passed to.
#ifndef DENSEFORMER_BASE_FUNCTION_REF_H_
#define DENSEFORMER_BASE_FUNCTION_REF_H_

#include <memory>
#include <type_traits>
#include <utility>

namespace denseformer {

template <class Signature>
class FunctionRef;

template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, FunctionRef>>>
  FunctionRef(F&& callable)  // NOLINT: implicit, as an argument
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace denseformer

#endif  // DENSEFORMER_BASE_FUNCTION_REF_H_
