# cmake -DREASON=<text> -P skip.cmake: what a test that cannot run on this machine prints.
message(NOTICE "peerless: skipped: ${REASON}")
