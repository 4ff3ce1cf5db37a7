#include "monitor/http.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/files.h"
#include "base/hash.h"
#include "monitor/text_scan.h"

namespace eaglet::monitor {
namespace {

constexpr std::size_t kMostConnections = 64, kLongestRequest = 16384, kMostPending = 8u << 20,
                      kLongestAnswer = 4u << 20;
constexpr double kIdleSeconds = 30, kKeepAliveSeconds = 15;

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::strtol(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

HttpRequest parse_request(std::string_view head) {
  HttpRequest request;
  const auto lines = split(head, '\n');
  const auto first = words(lines.front());
  if (first.size() < 2) return request;
  request.method = first[0];
  const std::string_view target = first[1];
  const std::size_t mark = target.find('?');
  request.path = decoded(target.substr(0, mark));
  if (mark != std::string_view::npos)
    for (const std::string_view pair : split(target.substr(mark + 1), '&')) {
      const std::size_t equals = pair.find('=');
      request.query[decoded(pair.substr(0, equals))] =
          equals == std::string_view::npos ? "" : decoded(pair.substr(equals + 1));
    }
  for (const std::string_view line : lines)
    if (starts_with(lower(line.substr(0, 5)), "host:")) request.host = std::string(trim(line.substr(5)));
  return request;
}

const char* reason_of(int status) {
  if (status == 200) return "OK";
  if (status == 403) return "Forbidden";
  return status == 404 ? "Not Found" : "Error";
}

std::string head_of(const HttpReply& reply) {
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Content-Security-Policy: default-src 'self'\r\nReferrer-Policy: no-referrer\r\n",
      reply.status, reason_of(reply.status), reply.events ? "text/event-stream" : reply.type);
  if (!reply.events) head += fmt::format("Content-Length: {}\r\nConnection: close\r\n", reply.body.size());
  return head + "\r\n";
}

std::string random_token() {
  std::uint64_t bits[2] = {};
  if (::getrandom(bits, sizeof bits, 0) != sizeof bits)
    bits[0] = static_cast<std::uint64_t>(1e9 * wall_seconds());
  return hex64(bits[0]) + hex64(bits[1]);
}

bool is_loopback(const std::string& host) {
  return host == "127.0.0.1" || host == "localhost" || host == "::1" || host == "[::1]";
}

struct Socket {
  int fd = -1;
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
};

bool wait_for(int fd, short what, double deadline) {
  pollfd wait = {fd, what, 0};
  const double left = deadline - monotonic_seconds();
  return left > 0 && ::poll(&wait, 1, static_cast<int>(1000 * left) + 1) > 0;
}

}  // namespace

HttpServer::HttpServer(int fd, std::string host, int port, std::string token, Handler handler)
    : fd_(fd), host_(std::move(host)), port_(port), token_(std::move(token)), handler_(std::move(handler)) {}

HttpServer::~HttpServer() {
  for (const Connection& connection : connections_) ::close(connection.fd);
  ::close(fd_);
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& address, Handler handler) {
  const std::size_t colon = address.rfind(':');
  const std::string host = colon == std::string::npos || colon == 0 ? "127.0.0.1" : address.substr(0, colon);
  const auto port = whole_number(colon == std::string::npos ? address : address.substr(colon + 1));
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  if (!port || *port > 65535 ||
      ::inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &place.sin_addr) != 1)
    return Status(StatusCode::kUsage, "'" + address + "' is no address to listen at", {},
                  "for example 127.0.0.1:9109");
  place.sin_port = htons(static_cast<std::uint16_t>(*port));
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int one = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&place), sizeof place) != 0 || ::listen(fd, 16) != 0) {
    const Status status = errno_status("listen", address, errno);
    if (fd >= 0) ::close(fd);
    return status;
  }
  socklen_t size = sizeof place;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&place), &size);
  std::string token = is_loopback(host) ? "" : random_token();
  return std::unique_ptr<HttpServer>(
      new HttpServer(fd, host, ntohs(place.sin_port), std::move(token), std::move(handler)));
}

std::string HttpServer::url() const {
  return fmt::format("http://{}:{}/{}", host_, port_, token_.empty() ? "" : "?token=" + token_);
}

HttpReply HttpServer::answer(const HttpRequest& request) const {
  HttpReply refused;
  refused.status = 403;
  // A name that a foreign page made point here (DNS rebinding) must not read the run.
  const std::string host = request.host.substr(0, request.host.rfind(':'));
  if (token_.empty() && !is_loopback(host) && !is_loopback(request.host)) {
    refused.body = "this server answers to its loopback name only\n";
    return refused;
  }
  const auto token = request.query.find("token");
  if (!token_.empty() && (token == request.query.end() || token->second != token_)) {
    refused.body = "the address needs its token: see where eaglet watch was started\n";
    return refused;
  }
  if (request.method != "GET") {
    refused.status = 405;
    return refused;
  }
  return handler_(request);
}

void HttpServer::accept_one() {
  const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  if (connections_.size() >= kMostConnections) {
    ::close(fd);
    return;
  }
  Connection connection;
  connection.fd = fd;
  connection.last = monotonic_seconds();
  connections_.push_back(std::move(connection));
}

void HttpServer::read_from(Connection* connection) {
  char block[4096];
  const ssize_t got = ::recv(connection->fd, block, sizeof block, 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    connection->closing = true;
    connection->out.clear();
    return;
  }
  if (got <= 0 || connection->events) return;
  connection->in.append(block, static_cast<std::size_t>(got));
  if (connection->in.size() > kLongestRequest) connection->closing = true;
  const std::size_t end = connection->in.find("\r\n\r\n");
  if (end == std::string::npos) return;
  const HttpReply reply = answer(parse_request(std::string_view(connection->in).substr(0, end)));
  connection->out = head_of(reply) + reply.body;
  connection->events = reply.events;
  connection->closing = !reply.events;
  connection->in.clear();
}

void HttpServer::write_to(Connection* connection) {
  const ssize_t sent = ::send(connection->fd, connection->out.data(), connection->out.size(), MSG_NOSIGNAL);
  if (sent > 0) {
    connection->out.erase(0, static_cast<std::size_t>(sent));
    connection->last = monotonic_seconds();
  } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
    connection->out.clear();
    connection->closing = true;
  }
}

void HttpServer::serve(double seconds) {
  const double deadline = monotonic_seconds() + seconds;
  do {
    std::vector<pollfd> waits = {{fd_, POLLIN, 0}};
    for (const Connection& connection : connections_)
      waits.push_back(
          {connection.fd, static_cast<short>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    const double left = std::max(0.0, deadline - monotonic_seconds());
    if (::poll(waits.data(), waits.size(), static_cast<int>(1000 * std::min(left, 0.2)) + 1) <= 0) continue;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      if ((waits[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(&connections_[i]);
      if (!connections_[i].out.empty()) write_to(&connections_[i]);
    }
    const double now = monotonic_seconds();
    std::erase_if(connections_, [&](const Connection& connection) {
      const bool idle = !connection.events && now - connection.last > kIdleSeconds;
      const bool done =
          (connection.closing && connection.out.empty()) || idle || connection.out.size() > kMostPending;
      if (done) ::close(connection.fd);
      return done;
    });
    if ((waits[0].revents & POLLIN) != 0) accept_one();
  } while (monotonic_seconds() < deadline);
  for (Connection& connection : connections_)
    if (connection.events && monotonic_seconds() - connection.last > kKeepAliveSeconds)
      connection.out += ": still here\n\n";
}

void HttpServer::send_event(const std::string& id, const std::string& data) {
  for (Connection& connection : connections_)
    if (connection.events) connection.out += fmt::format("id: {}\ndata: {}\n\n", id, data);
}

Result<HttpAnswer> http_request(const std::string& url, const std::string& path, const std::string& body,
                                double patience_seconds) {
  constexpr std::string_view kScheme = "http://";
  if (!starts_with(url, kScheme)) return Status(StatusCode::kUsage, "only http:// addresses are asked", url);
  std::string authority = url.substr(kScheme.size());
  authority = authority.substr(0, authority.find('/'));
  const std::size_t colon = authority.rfind(':');
  const std::string host = authority.substr(0, colon),
                    port = colon == std::string::npos ? "80" : authority.substr(colon + 1);
  const double deadline = monotonic_seconds() + patience_seconds;
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0 || found == nullptr)
    return Status(StatusCode::kUnavailable, "no such host", host);
  Socket socket;
  bool connected = false;
  for (const addrinfo* at = found; at != nullptr && !connected; at = at->ai_next) {
    if (socket.fd >= 0) ::close(socket.fd);
    socket.fd = ::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket.fd < 0) continue;
    connected = ::connect(socket.fd, at->ai_addr, at->ai_addrlen) == 0;
    if (connected || errno != EINPROGRESS || !wait_for(socket.fd, POLLOUT, deadline)) continue;
    int error = 0;
    socklen_t size = sizeof error;
    connected = ::getsockopt(socket.fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }
  ::freeaddrinfo(found);
  if (!connected) return Status(StatusCode::kUnavailable, "nothing listens there", url);
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
                                    body.empty() ? "GET" : "POST", path, authority);
  if (!body.empty())
    request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  request += "\r\n" + body;
  std::size_t sent = 0;
  while (sent < request.size() && wait_for(socket.fd, POLLOUT, deadline)) {
    const ssize_t wrote = ::send(socket.fd, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (wrote <= 0) break;
    sent += static_cast<std::size_t>(wrote);
  }
  std::string text;
  char block[8192];
  while (text.size() < kLongestAnswer && wait_for(socket.fd, POLLIN, deadline)) {
    const ssize_t got = ::recv(socket.fd, block, sizeof block, 0);
    if (got <= 0) break;
    text.append(block, static_cast<std::size_t>(got));
  }
  const auto first = words(std::string_view(text).substr(0, text.find('\r')));
  HttpAnswer answer;
  if (first.size() >= 2 && starts_with(first[0], "HTTP/"))
    answer.status = static_cast<int>(whole_number(first[1]).value_or(0));
  if (answer.status == 0)
    return Status(StatusCode::kUnavailable, "it accepts connections, but does not answer in time",
                  url + path);
  const std::size_t end = text.find("\r\n\r\n");
  const std::string head = lower(std::string_view(text).substr(0, end));
  std::string_view rest =
      end == std::string::npos ? std::string_view() : std::string_view(text).substr(end + 4);
  if (!contains(head, "transfer-encoding: chunked")) {
    answer.body = std::string(rest);
    return answer;
  }
  while (!rest.empty()) {
    const std::size_t line = rest.find("\r\n");
    if (line == std::string_view::npos) break;
    const auto size =
        static_cast<std::size_t>(std::strtoul(std::string(rest.substr(0, line)).c_str(), nullptr, 16));
    if (size == 0 || line + 2 + size > rest.size()) break;
    answer.body += rest.substr(line + 2, size);
    rest.remove_prefix(std::min(rest.size(), line + 2 + size + 2));
  }
  return answer;
}

}  // namespace eaglet::monitor
