#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace eaglet::monitor {

/// A small HTTP/1.1 server on plain sockets. A library would do, and cpp-httplib is in Debian; but libllama
/// is linked with its own copy of it in another version. That one is header-only: its inline functions have
/// the same names in both, the linker keeps whichever it meets first, and code compiled for the one layout of
/// a struct then runs on the other. So the room that must also build alone has what it needs, GET and one
/// reply, of its own. As a client of servers there is `client`, over curl.

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

}  // namespace eaglet::monitor
