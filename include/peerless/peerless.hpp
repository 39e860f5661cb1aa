// Everything that needs no CUDA: communicators over host memory, bootstraps, types, errors.
#pragma once

#include <peerless/bootstrap/from_environment.hpp>
#include <peerless/bootstrap/local_host.hpp>
#include <peerless/bootstrap/thread_group.hpp>
#include <peerless/communicator.hpp>
#include <peerless/transport/host.hpp>
