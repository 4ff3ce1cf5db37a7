# MPI is optional (EAGLET_MPI): one of the two files that define start_mpi() is left out.
set(EAGLET_ROOM_LIBRARIES fmt::fmt)
if(EAGLET_WITH_MPI)
  list(FILTER sources EXCLUDE REGEX "/without_mpi\\.cc$")
  list(APPEND EAGLET_ROOM_LIBRARIES MPI::MPI_C)
else()
  list(FILTER sources EXCLUDE REGEX "/mpi_comm\\.cc$")
endif()
