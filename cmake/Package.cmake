# The Debian package of the program (scripts/package): program, manual page, completion.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME denseformer)
set(CPACK_PACKAGE_VENDOR "denseformer")
set(CPACK_PACKAGE_CONTACT "denseformer maintainers <maintainers@denseformer.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Train, evaluate and run DenseFormer language models on CPUs")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# Without the library and its headers: who builds against them builds them.
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME denseformer)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The packages of the libraries that the program is linked with, as dpkg finds them; LAPACK is loaded
# when it is asked for.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS liblapacke)
include(CPack)
