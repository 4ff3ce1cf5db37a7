#include "monitor/http_get.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/clock.h"
#include "base/wait_ready.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kLongestBody = 8u << 20;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Errno of the connection, 0 when it stands.
int connect_to(int fd, const addrinfo& to, double deadline) {
  if (::connect(fd, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_ready(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

bool send_all(int fd, std::string_view text, double deadline) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN || !wait_ready(fd, POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

/// Until the other side closes; false when it did not in time.
bool receive_all(int fd, double deadline, std::string* text) {
  char bytes[16384];
  while (text->size() < kLongestBody) {
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
    if (got == 0) return true;
    if (got > 0)
      text->append(bytes, static_cast<std::size_t>(got));
    else if (errno != EAGAIN || !wait_ready(fd, POLLIN, deadline))
      return false;
  }
  return true;
}

/// "HTTP/1.1 200 OK" and what follows the empty line. The request says HTTP/1.0, so nothing is in chunks; a
/// body ends where its length says, or with the connection.
Result<HttpAnswer> parse_answer(const std::string& text, bool closed) {
  const Status broken(StatusCode::kUnavailable, "its answer is no HTTP");
  const std::size_t head_end = text.find("\r\n\r\n");
  if (!starts_with(text, "HTTP/1.") || head_end == std::string::npos)
    return closed ? broken : Status(StatusCode::kUnavailable, "no answer in time");
  HttpAnswer answer;
  const auto first = words(std::string_view(text).substr(0, text.find('\r')));
  answer.status = first.size() < 2 ? 0 : static_cast<int>(whole_number(first[1]).value_or(0));
  if (answer.status < 100 || answer.status > 599) return broken;
  answer.body = text.substr(head_end + 4);
  std::size_t length = std::string::npos;
  for (const std::string_view line : split(std::string_view(text).substr(0, head_end), '\n'))
    if (starts_with(lower(line.substr(0, 15)), "content-length:"))
      length = static_cast<std::size_t>(
          std::max<std::int64_t>(0, whole_number(trim(line.substr(15))).value_or(0)));
  const bool whole = length != std::string::npos && answer.body.size() >= length;
  if (whole) answer.body.resize(length);
  if (!whole && !closed) return Status(StatusCode::kUnavailable, "half an answer in time");
  return answer;
}

Result<std::string> ask_one(const addrinfo& to, const std::string& request, double deadline, bool* closed) {
  const Socket socket(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) return Status(StatusCode::kUnavailable, std::strerror(errno));
  if (const int error = connect_to(socket.fd(), to, deadline); error != 0)
    return Status(StatusCode::kUnavailable,
                  error == ETIMEDOUT ? "no connection in time" : std::strerror(error));
  if (!send_all(socket.fd(), request, deadline))
    return Status(StatusCode::kUnavailable, "it takes no request");
  std::string text;
  *closed = receive_all(socket.fd(), deadline, &text);
  return text;
}

}  // namespace

Result<HttpAnswer> http_get(const std::string& host, int port, const std::string& path, double seconds) {
  const std::string where = fmt::format("http://{}:{}{}", host, port, path);
  const double deadline = monotonic_seconds() + seconds;
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &list); error != 0)
    return Status(StatusCode::kUnavailable, ::gai_strerror(error), where);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(list, ::freeaddrinfo);
  const std::string request = fmt::format(
      "GET {} HTTP/1.0\r\nHost: {}:{}\r\nAccept: text/plain\r\nUser-Agent: eaglet\r\nConnection: "
      "close\r\n\r\n",
      path, host, port);
  Status last(StatusCode::kUnavailable, "it has no address");
  for (const addrinfo* to = addresses.get(); to != nullptr; to = to->ai_next) {
    bool closed = false;
    auto text = ask_one(*to, request, deadline, &closed);
    if (text.ok()) {
      auto answer = parse_answer(*text, closed);
      if (answer.ok()) return answer;
      last = answer.status();
    } else {
      last = text.status();
    }
  }
  return last.at(where);
}

Result<HttpAddress> http_address(const std::string& url) {
  const Status wrong(StatusCode::kUsage, "'" + url + "' is no address of a server to look at", {},
                     "for example http://127.0.0.1:8000, without encryption");
  constexpr std::string_view kStart = "http://";
  if (!starts_with(url, kStart)) return wrong;
  std::string_view rest = std::string_view(url).substr(kStart.size());
  rest = rest.substr(0, rest.find_first_of("/?#"));
  HttpAddress address;
  const std::size_t bracket = rest.find(']');
  const std::size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  address.host = std::string(rest.substr(0, colon));
  if (starts_with(address.host, "[") && bracket != std::string_view::npos)
    address.host = address.host.substr(1, address.host.size() - 2);
  if (colon != std::string_view::npos) {
    const auto port = whole_number(rest.substr(colon + 1));
    if (!port || *port < 1 || *port > 65535) return wrong;
    address.port = static_cast<int>(*port);
  }
  if (address.host.empty() || address.host.find_first_of(" @\r\n\t") != std::string::npos) return wrong;
  return address;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || starts_with(host, "127.");
}

}  // namespace eaglet::monitor
