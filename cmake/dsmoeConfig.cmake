include("${CMAKE_CURRENT_LIST_DIR}/dsmoeTargets.cmake")
