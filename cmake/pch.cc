// Carries the precompiled header of cmake/Warnings.cmake; nothing else is here.
