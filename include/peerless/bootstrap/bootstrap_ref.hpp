// A view of any bootstrap with its type erased.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include <peerless/bootstrap/concepts.hpp>

PEERLESS_BEGIN_NAMESPACE

// Borrows a bootstrap and is one itself. Pass by value; copies refer to the same group. The bootstrap must outlive the
// call that is given the view, no more: what needs the peers for longer keeps descriptors (peers(), broadcast_fd()).
// A table of function pointers, not a base class: a user's own bootstrap needs nothing of this library but the shape.
class bootstrap_ref {
 public:
  // Implicit, so that any bootstrap can be handed to a constructor that takes a view.
  template <class B>
    requires(!std::is_same_v<std::remove_const_t<B>, bootstrap_ref> && bootstrap<B>)
  bootstrap_ref(B& group) noexcept : object_(std::addressof(group)), table_(&table_of<B>) {}

  int rank() const { return table_->rank(object_); }
  int size() const { return table_->size(object_); }
  bool same_process() const { return table_->same_process(object_); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, deadline limit) const {
    table_->all_gather(object_, mine, all, limit);
  }
  void barrier(deadline limit) const { table_->barrier(object_, limit); }
  unique_fd broadcast_fd(int fd, int root, deadline limit) const {
    return table_->broadcast_fd(object_, fd, root, limit);
  }
  std::vector<peer_handle> peers() const { return table_->peers(object_); }

 private:
  struct table {
    int (*rank)(const void*);
    int (*size)(const void*);
    bool (*same_process)(const void*);
    void (*all_gather)(void*, std::span<const std::byte>, std::span<std::byte>, deadline);
    void (*barrier)(void*, deadline);
    unique_fd (*broadcast_fd)(void*, int, int, deadline);
    std::vector<peer_handle> (*peers)(const void*);
  };

  template <class B>
  static constexpr table table_of = {
      [](const void* group) { return static_cast<const B*>(group)->rank(); },
      [](const void* group) { return static_cast<const B*>(group)->size(); },
      [](const void* group) { return static_cast<const B*>(group)->same_process(); },
      [](void* group, std::span<const std::byte> mine, std::span<std::byte> all, deadline limit) {
        static_cast<B*>(group)->all_gather(mine, all, limit);
      },
      [](void* group, deadline limit) { static_cast<B*>(group)->barrier(limit); },
      [](void* group, int fd, int root, deadline limit) {
        return static_cast<B*>(group)->broadcast_fd(fd, root, limit);
      },
      [](const void* group) { return static_cast<const B*>(group)->peers(); },
  };

  void* object_;
  const table* table_;
};

static_assert(bootstrap<bootstrap_ref>);

PEERLESS_END_NAMESPACE
