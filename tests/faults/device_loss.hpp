// A GPU that is lost to this process in the middle of its work.
#pragma once

namespace peerless::test {

// Made on the current device, while it works: what is needed later is loaded then.
class device_loss {
 public:
  device_loss();

  // Runs a kernel that traps, beside whatever else runs: from then on every CUDA call of this process for the device
  // fails. Any thread; returns when it has happened. Throws errc::system_error if it has not.
  void strike() const;

 private:
  int device_ = 0;
  void* stream_ = nullptr;  // never destroyed: it cannot be
};

}  // namespace peerless::test
