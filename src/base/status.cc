#include "base/status.h"

namespace eaglet {

std::string Status::message() const {
  if (ok()) return "ok";
  std::string text = "error: " + what_;
  if (!where_.empty()) text += "\n  where: " + where_;
  if (!todo_.empty()) text += "\n  do:    " + todo_;
  return text;
}

Status Status::at(const std::string& place) const {
  if (ok()) return *this;
  return Status(code_, what_, where_.empty() ? place : place + ": " + where_, todo_);
}

Status Status::advise(const std::string& todo) const {
  if (ok() || !todo_.empty()) return *this;
  return Status(code_, what_, where_, todo);
}

}  // namespace eaglet
