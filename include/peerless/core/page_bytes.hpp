// Sizes of the pages that shared memory is laid out for.
#pragma once

#include <cstddef>

#include <peerless/config.hpp>

PEERLESS_BEGIN_NAMESPACE

// Pages that a region may consist of: it begins and ends with a whole one.
inline constexpr std::size_t page_bytes = 4096;
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

PEERLESS_END_NAMESPACE
