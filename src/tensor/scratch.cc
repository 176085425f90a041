#include "tensor/scratch.h"

namespace denseformer {

void* ThreadScratch(size_t bytes) {
  thread_local Storage storage;
  if (storage.bytes() < bytes) {
    storage = Storage();  // gives the old block back before it asks for the new one
    storage = Storage(bytes);
  }
  return storage.data();
}

}  // namespace denseformer
