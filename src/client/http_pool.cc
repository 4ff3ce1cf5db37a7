#include "client/http_pool.h"

#include <curl/curl.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace eaglet {
namespace {

constexpr std::size_t kMostReplyBytes = std::size_t{256} << 20;

void start_curl_once() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

struct Exchange {
  HttpRequest request;
  HttpPool::Done done;
  HttpReply reply;
  char error[CURL_ERROR_SIZE] = {0};
};

std::size_t keep_body(char* data, std::size_t, std::size_t bytes, void* to) {
  auto* exchange = static_cast<Exchange*>(to);
  if (exchange->reply.body.size() + bytes > kMostReplyBytes) return 0;  // curl ends the exchange
  exchange->reply.body.append(data, bytes);
  return bytes;
}

HttpFailure failure_of(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return HttpFailure::kNone;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return HttpFailure::kNoHost;
    case CURLE_COULDNT_CONNECT:
      return HttpFailure::kNoConnection;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
      return HttpFailure::kTls;
    case CURLE_OPERATION_TIMEDOUT:
      return HttpFailure::kTimeout;
    default:
      return HttpFailure::kBroken;
  }
}

class CurlPool : public HttpPool {
 public:
  explicit CurlPool(HttpPoolOptions options) : options_(std::move(options)), multi_(curl_multi_init()) {
    headers_ = curl_slist_append(headers_, "Content-Type: application/json");
    headers_ = curl_slist_append(headers_, "Expect:");  // no extra round trip before a body
    if (!options_.bearer.empty())
      headers_ = curl_slist_append(headers_, ("Authorization: Bearer " + options_.bearer).c_str());
    if (multi_ != nullptr)
      curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(options_.connections));
  }

  ~CurlPool() override {
    for (auto& [easy, exchange] : running_) {
      curl_multi_remove_handle(multi_, easy);
      curl_easy_cleanup(easy);
    }
    for (CURL* easy : idle_) curl_easy_cleanup(easy);
    if (multi_ != nullptr) curl_multi_cleanup(multi_);
    curl_slist_free_all(headers_);
  }

  bool ready() const { return multi_ != nullptr && headers_ != nullptr; }

  void submit(const HttpRequest& request, Done done) override {
    CURL* easy = take_handle();
    auto exchange = std::make_unique<Exchange>();
    exchange->request = request;
    exchange->done = std::move(done);
    if (easy == nullptr || !set_options(easy, exchange.get()) ||
        curl_multi_add_handle(multi_, easy) != CURLM_OK) {
      exchange->reply.failure = HttpFailure::kBroken;
      exchange->reply.error = "curl has no memory for another request";
      failed_.push_back(std::move(exchange));
      if (easy != nullptr) idle_.push_back(easy);
      return;
    }
    running_.emplace(easy, std::move(exchange));
  }

  Status poll(double seconds) override {
    std::vector<std::unique_ptr<Exchange>> finished = std::exchange(failed_, {});
    int active = 0;
    CURLMcode code = curl_multi_perform(multi_, &active);
    if (code == CURLM_OK && finished.empty() && !collect(&finished)) {
      const int wait_ms = static_cast<int>(std::clamp(seconds, 0.0, 10.0) * 1000);
      code = curl_multi_poll(multi_, nullptr, 0, wait_ms, nullptr);
      if (code == CURLM_OK) code = curl_multi_perform(multi_, &active);
    }
    collect(&finished);
    for (auto& exchange : finished) exchange->done(std::move(exchange->reply));
    if (code == CURLM_OK) return {};
    return Status(StatusCode::kUnavailable, std::string("curl failed: ") + curl_multi_strerror(code));
  }

  std::size_t in_flight() const override { return running_.size() + failed_.size(); }

 private:
  CURL* take_handle() {
    if (idle_.empty()) return curl_easy_init();
    CURL* easy = idle_.back();
    idle_.pop_back();
    curl_easy_reset(easy);
    return easy;
  }

  bool set_options(CURL* easy, Exchange* exchange) {
    const HttpRequest& request = exchange->request;
    bool fine = true;
    const auto set = [&](CURLoption option, auto value) {
      fine = fine && curl_easy_setopt(easy, option, value) == CURLE_OK;
    };
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_HTTPHEADER, headers_);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TCP_NODELAY, 1L);
    set(CURLOPT_ERRORBUFFER, exchange->error);
    set(CURLOPT_WRITEFUNCTION, keep_body);
    set(CURLOPT_WRITEDATA, static_cast<void*>(exchange));
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_seconds * 1000));
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout_seconds * 1000));
    if (!options_.ca_file.empty()) set(CURLOPT_CAINFO, options_.ca_file.c_str());
    if (!request.body.empty()) {
      set(CURLOPT_POSTFIELDS, request.body.c_str());
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    }
    return fine;
  }

  /// Takes finished exchanges out of curl; true when there was one.
  bool collect(std::vector<std::unique_ptr<Exchange>>* finished) {
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      CURL* easy = message->easy_handle;
      const CURLcode result = message->data.result;
      curl_multi_remove_handle(multi_, easy);
      const auto entry = running_.find(easy);
      std::unique_ptr<Exchange> exchange = std::move(entry->second);
      running_.erase(entry);
      fill_reply(easy, result, exchange.get());
      idle_.push_back(easy);
      finished->push_back(std::move(exchange));
    }
    return !finished->empty();
  }

  static void fill_reply(CURL* easy, CURLcode result, Exchange* exchange) {
    HttpReply& reply = exchange->reply;
    reply.failure = failure_of(result);
    if (result != CURLE_OK) {
      reply.error = exchange->error[0] != '\0' ? exchange->error : curl_easy_strerror(result);
      return;
    }
    long status = 0;
    curl_off_t wait = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    if (curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0)
      reply.retry_after_seconds = static_cast<double>(wait);
    reply.status = static_cast<int>(status);
  }

  const HttpPoolOptions options_;
  CURLM* multi_;
  curl_slist* headers_ = nullptr;
  std::unordered_map<CURL*, std::unique_ptr<Exchange>> running_;
  std::vector<CURL*> idle_;
  std::vector<std::unique_ptr<Exchange>> failed_;  // never reached curl; told at the next poll
};

}  // namespace

Result<std::unique_ptr<HttpPool>> HttpPool::create(const HttpPoolOptions& options) {
  start_curl_once();
  auto pool = std::make_unique<CurlPool>(options);
  if (!pool->ready()) return Status(StatusCode::kNoSpace, "no memory for network connections");
  return std::unique_ptr<HttpPool>(std::move(pool));
}

HttpReply HttpPool::fetch(const HttpRequest& request) {
  HttpReply reply;
  bool there = false;
  submit(request, [&](HttpReply got) {
    reply = std::move(got);
    there = true;
  });
  while (!there) {
    const Status status = poll(0.2);
    if (status.ok()) continue;
    reply.failure = HttpFailure::kBroken;
    reply.error = status.what();
    // The exchange is still in curl and would call back into this frame: let it end.
    while (!there && poll(0.2).ok()) {
    }
    break;
  }
  return reply;
}

}  // namespace eaglet
