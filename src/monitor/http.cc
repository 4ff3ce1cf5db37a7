#include "monitor/http.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
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

constexpr std::size_t kMostConnections = 64, kLongestRequest = 16384, kMostPending = 8u << 20;
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

const char* status_words(int status) {
  if (status == 200) return "OK";
  if (status == 403) return "Forbidden";
  return status == 404 ? "Not Found" : "Error";
}

std::string head_of(const HttpReply& reply) {
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Content-Security-Policy: default-src 'self'\r\nReferrer-Policy: no-referrer\r\n",
      reply.status, status_words(reply.status), reply.events ? "text/event-stream" : reply.type);
  if (!reply.events) head += fmt::format("Content-Length: {}\r\nConnection: close\r\n", reply.body.size());
  return head + "\r\n";
}

std::string random_token() {
  std::uint64_t bits[2] = {};
  if (::getrandom(bits, sizeof bits, 0) != sizeof bits)
    bits[0] = static_cast<std::uint64_t>(1e9 * wall_seconds());
  return hex64(bits[0]) + hex64(bits[1]);
}

bool is_loopback_name(const std::string& host) {
  return host == "127.0.0.1" || host == "localhost" || host == "::1" || host == "[::1]";
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
  std::string token = is_loopback_name(host) ? "" : random_token();
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
  if (token_.empty() && !is_loopback_name(host) && !is_loopback_name(request.host)) {
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

}  // namespace eaglet::monitor
