#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet::monitor {

/// A small HTTP/1.1 server and client on plain sockets. A library would do, but libllama brings its own copy
/// of the usual one in another version, and two copies in one program cannot be told apart by the linker.

struct HttpRequest {
  std::string method, path, host;            // path without the query
  std::map<std::string, std::string> query;  // decoded
};
struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8", body;
  bool events = false;  // an open stream of server-sent events
};

/// One thread, one poll() over everything. Loopback unless told otherwise; a wider address needs the token.
class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;
  /// `address` is "127.0.0.1:9109", ":9109" (loopback) or "0.0.0.0:9109"; port 0 takes a free one.
  static Result<std::unique_ptr<HttpServer>> listen(const std::string& address, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Serves for that long.
  void serve(double seconds);
  /// Sends one event to every open stream.
  void send_event(const std::string& id, const std::string& data);
  /// "http://127.0.0.1:9109/", with the token when one is needed.
  std::string url() const;

 private:
  struct Connection {
    int fd = -1;
    std::string in, out;
    bool events = false, closing = false;
    double last = 0;  // monotonic: idle ones are closed, streams get a comment
  };
  HttpServer(int fd, std::string host, int port, std::string token, Handler handler);
  void accept_one();
  void read_from(Connection* connection);
  void write_to(Connection* connection);
  HttpReply answer(const HttpRequest& request) const;
  int fd_;
  std::string host_;
  int port_;
  std::string token_;
  Handler handler_;
  std::vector<Connection> connections_;
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};
/// GET, or POST when there is a body. `url` is "http://host:port". kUnavailable: nobody listens or no answer
/// in time.
Result<HttpAnswer> http_request(const std::string& url, const std::string& path, const std::string& body,
                                double patience_seconds);

}  // namespace eaglet::monitor
