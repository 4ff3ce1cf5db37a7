#include "base/host_name.h"

#include <unistd.h>

#include <cctype>

namespace eaglet {
namespace {

/// Up to the first dot, in small letters; an address (only digits and dots) as it is.
std::string short_name(const std::string& name) {
  const bool address = name.find_first_not_of("0123456789.") == std::string::npos;
  std::string out = address ? name : name.substr(0, name.find('.'));
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

bool same_host(const std::string& a, const std::string& b) {
  return short_name(a) == short_name(b);
}

}  // namespace eaglet
