#include <algorithm>
#include <map>

#include "base/clock.h"
#include "monitor/devices.h"
#include "monitor/gpu_page.h"
#include "monitor/http_get.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

class GpuExporter : public DeviceSource {
 public:
  GpuExporter(HttpAddress address, std::string path, GpuExporterPace pace)
      : address_(std::move(address)), path_(std::move(path)), pace_(pace) {}

  Status ask() {
    next_ = monotonic_seconds() + pace_.rest_seconds;
    known_ = false;
    auto answer = http_get(address_.host, address_.port, path_, pace_.patience_seconds);
    if (!answer.ok()) return answer.status();
    if (answer->status != 200)
      return Status(StatusCode::kUnavailable, "GET " + path_ + " says " + std::to_string(answer->status));
    page_ = read_gpu_page(answer->body);
    if (page_.exporter.empty())
      return Status(StatusCode::kUnavailable,
                    "its page has nothing of dcgm-exporter, nvidia_gpu_exporter or nvitop-exporter");
    next_ = monotonic_seconds() + pace_.ask_every_seconds;
    known_ = true;
    note_xids();
    return {};
  }

  void read(RunView* view) override {
    if (monotonic_seconds() >= next_) (void)ask().ok();  // one that is away: unknown, until it is back
    if (!known_) return;
    view->devices.emplace();
    for (const ExportedGpu& gpu : page_.gpus) view->devices->push_back(gpu.view);
    view->device_processes = page_.processes;
  }
  std::string name() const override { return page_.exporter; }

 private:
  /// An exporter goes on telling of what happened before we looked: only what is new counts.
  void note_xids() {
    for (ExportedGpu& gpu : page_.gpus) {
      auto& [first, counts, news] = xids_[gpu.view.id.empty() ? std::to_string(gpu.view.index) : gpu.view.id];
      for (const auto& [xid, count] : gpu.xids)
        if (const auto before = counts.find(xid);
            !first && (before == counts.end() || count > before->second))
          news.push_back(xid);
      if (news.size() > kMostXids) news.erase(news.begin(), news.end() - kMostXids);
      counts = gpu.xids;
      first = false;
      gpu.view.xids = news;
    }
  }

  struct Xids {
    bool first = true;
    std::map<std::int64_t, double> counts;
    std::vector<std::int64_t> news;
  };
  static constexpr std::ptrdiff_t kMostXids = 16;

  HttpAddress address_;
  std::string path_;
  GpuExporterPace pace_;
  double next_ = -1;
  bool known_ = false;
  GpuPage page_;
  std::map<std::string, Xids> xids_;
};

/// What stands behind host and port; "/metrics" when nothing does.
std::string path_of(const std::string& url) {
  const std::size_t slash = url.find('/', std::string("http://").size());
  return slash == std::string::npos || slash + 1 == url.size() ? "/metrics" : url.substr(slash);
}

}  // namespace

Result<std::unique_ptr<DeviceSource>> open_gpu_exporter(const std::string& url, GpuExporterPace pace) {
  const auto address = http_address(url);
  const std::string path = path_of(url);
  if (!address.ok() || path.find_first_of(" \r\n\t") != std::string::npos)
    return Status(StatusCode::kUsage, "'" + url + "' is no address of an exporter", {},
                  "for example http://127.0.0.1:9400, without encryption");
  auto source = std::make_unique<GpuExporter>(*address, path, pace);
  if (const Status status = source->ask(); !status.ok())
    return Status(
        StatusCode::kUnavailable, "no GPU exporter answers: " + status.what(), url,
        "start dcgm-exporter, nvidia_gpu_exporter or nvitop-exporter there, or name another address");
  return std::unique_ptr<DeviceSource>(std::move(source));
}

}  // namespace eaglet::monitor
