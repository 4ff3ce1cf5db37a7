#include "apps/bench_responder.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "formats/json.h"

namespace eaglet::apps {
namespace {

constexpr int kPollMilliseconds = 100;

std::string http_reply(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

/// The reply to every chat: ids of a prompt of 20 tokens and an answer of so many.
std::string chat_body(std::int64_t answer_tokens) {
  Json prompt = Json::array(), answer = Json::array();
  std::string text;
  for (int i = 0; i < 20; ++i) prompt.push_back(100 + i);
  for (std::int64_t i = 0; i < answer_tokens; ++i) {
    answer.push_back(1000 + i % 5000);
    text += "word ";
  }
  const Json choice = {{"index", 0},
                       {"message", {{"role", "assistant"}, {"content", text}, {"reasoning_content", "hm"}}},
                       {"finish_reason", "stop"},
                       {"token_ids", answer}};
  return json_line({{"object", "chat.completion"},
                    {"choices", Json::array({choice})},
                    {"prompt_token_ids", prompt},
                    {"usage", {{"prompt_tokens", 20}, {"completion_tokens", answer_tokens}}}});
}

/// Length of the whole request at the front of `bytes`; 0 when it is not all there.
std::size_t request_bytes(std::string_view bytes) {
  const std::size_t head = bytes.find("\r\n\r\n");
  if (head == bytes.npos) return 0;
  std::size_t body = 0;
  const std::size_t field = bytes.substr(0, head).find("Content-Length: ");
  if (field != bytes.npos) body = static_cast<std::size_t>(std::atoll(bytes.data() + field + 16));
  return bytes.size() >= head + 4 + body ? head + 4 + body : 0;
}

struct Connection {
  int fd;
  std::string received;
};

bool send_all(int fd, const std::string& reply) {
  for (std::size_t sent = 0; sent < reply.size();) {
    const ssize_t n = ::send(fd, reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<BenchResponder>> BenchResponder::start(std::int64_t answer_tokens) {
  std::unique_ptr<BenchResponder> server(new BenchResponder());
  server->chat_reply_ = http_reply(chat_body(answer_tokens));
  server->listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (server->listener_ < 0 || ::bind(server->listener_, generic, length) != 0 ||
      ::listen(server->listener_, 512) != 0 || ::getsockname(server->listener_, generic, &length) != 0)
    return errno_status("listen on", "127.0.0.1", errno);
  server->port_ = ntohs(address.sin_port);
  server->thread_ = std::thread([raw = server.get()] { raw->serve(); });
  return server;
}

BenchResponder::~BenchResponder() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
  if (listener_ >= 0) ::close(listener_);
}

void BenchResponder::serve() {
  const std::string empty = http_reply("{}");
  const std::string models =
      http_reply(R"({"object":"list","data":[{"id":"bench","object":"model","owned_by":"vllm"}]})");
  std::vector<Connection> connections;
  std::vector<char> buffer(64 * 1024);
  while (!ending_) {
    std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
    for (const Connection& c : connections) polled.push_back({c.fd, POLLIN, 0});
    if (::poll(polled.data(), polled.size(), kPollMilliseconds) <= 0) continue;
    for (std::size_t i = polled.size() - 1; i >= 1; --i) {  // backwards: a closed one is taken out
      if (polled[i].revents == 0) continue;
      Connection& c = connections[i - 1];
      const ssize_t got = ::recv(c.fd, buffer.data(), buffer.size(), 0);
      bool open = got > 0;
      if (open) c.received.append(buffer.data(), static_cast<std::size_t>(got));
      for (std::size_t whole = 0; open && (whole = request_bytes(c.received)) > 0;) {
        const bool chat = c.received.compare(0, 5, "POST ") == 0;
        const bool asks_models = c.received.compare(0, 14, "GET /v1/models") == 0;
        open = send_all(c.fd, chat ? chat_reply_ : asks_models ? models : empty);
        c.received.erase(0, whole);
      }
      if (open) continue;
      ::close(c.fd);
      connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i - 1));
    }
    if (polled[0].revents != 0) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int on = 1;
      if (fd >= 0) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (fd >= 0) connections.push_back({fd, {}});
    }
  }
  for (const Connection& c : connections) ::close(c.fd);
}

}  // namespace eaglet::apps
