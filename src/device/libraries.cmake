set(EAGLET_ROOM_LIBRARIES DNNL::dnnl OpenMP::OpenMP_CXX hwy::hwy)
