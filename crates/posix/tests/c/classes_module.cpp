// Threads whose code is in a library: by each way to start one.
#include <pthread.h>
#include <thread>
#include <threads.h>

namespace {
struct Call {
  void (*run)(int);
  int nth;
};

void *by_pthread(void *arg) {
  Call *call = static_cast<Call *>(arg);
  call->run(call->nth);
  delete call;
  return nullptr;
}

int by_c11(void *arg) { return by_pthread(arg) != nullptr; }
}  // namespace

// Starts a detached thread that calls `run(nth)`. Returns whether it could.
extern "C" int start_in_module(int way, void (*run)(int), int nth) {
  Call *call = new Call{run, nth};
  pthread_t posix;
  thrd_t c11;
  switch (way) {
    case 0:
      return pthread_create(&posix, nullptr, by_pthread, call) == 0 && pthread_detach(posix) == 0;
    case 1:
      return thrd_create(&c11, by_c11, call) == thrd_success && thrd_detach(c11) == thrd_success;
    default:
      std::thread([call] { by_pthread(call); }).detach();
      return 1;
  }
}
