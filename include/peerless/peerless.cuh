// Everything, for translation units that nvcc compiles.
#pragma once

#include <peerless/peerless.hpp>
#include <peerless/transport/shm.cuh>
