#include <utility>

#include "comm/device_ranks.h"
#include "device/place.h"

namespace eaglet {
namespace {

// As with ops: an array's place says where the work is done.
class DeviceComm : public Comm {
 public:
  DeviceComm(std::unique_ptr<Comm> host, std::unique_ptr<DeviceRanks> device)
      : host_(std::move(host)), device_(std::move(device)) {}

  int rank() const override { return host_->rank(); }
  int ranks() const override { return host_->ranks(); }
  int ranks_here() const override { return host_->ranks_here(); }
  int rank_here() const override { return host_->rank_here(); }
  Status sum(std::int64_t n, float* values) override {
    return on_device(values) ? finish(device_->sum(n, values)) : host_->sum(n, values);
  }
  Status sum(std::int64_t n, double* values) override {
    return on_device(values) ? finish(device_->sum(n, values)) : host_->sum(n, values);
  }
  Status broadcast(std::int64_t bytes, void* data, int root) override {
    return on_device(data) ? finish(device_->broadcast(bytes, data, root))
                           : host_->broadcast(bytes, data, root);
  }
  Status send(std::int64_t bytes, const void* data, int to) override {
    return on_device(data) ? no_way() : host_->send(bytes, data, to);
  }
  Status receive(std::int64_t bytes, void* data, int from) override {
    return on_device(data) ? no_way() : host_->receive(bytes, data, from);
  }
  Status check() override { return host_->check(); }
  void count_call() override { host_->count_call(); }
  Status overdue(double waited_seconds) override { return host_->overdue(waited_seconds); }
  void set_busy(bool busy) override { host_->set_busy(busy); }
  DeviceRanks* device_ranks() override { return device_.get(); }
  void leave_together() override {
    device_.reset();
    host_->leave_together();
  }
  // After a failure the others get to know why before they see a connection of the devices break.
  void leave(const Status& status) override {
    if (!status.ok()) {
      host_->leave(status);
      if (device_) device_->abandon();
    }
    device_.reset();
    host_->leave(status);
  }

 private:
  Status finish(const Status& begun) {
    if (!begun.ok()) return begun;
    device_->join();
    return device_->wait();
  }
  static Status no_way() {
    return Status(StatusCode::kInternal,
                  "one rank's array in device memory for one other: copy it to the host");
  }

  std::unique_ptr<Comm> host_;
  std::unique_ptr<DeviceRanks> device_;  // gone first: it uses host_
};

}  // namespace

std::unique_ptr<Comm> with_device_ranks(std::unique_ptr<Comm> host, std::unique_ptr<DeviceRanks> device) {
  return std::make_unique<DeviceComm>(std::move(host), std::move(device));
}

}  // namespace eaglet
