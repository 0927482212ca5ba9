// The entry for CloudNativePG's catalogue of extension images.
metadata = {
  name                     = "lantern-index"
  sql_name                 = "lantern_index"
  image_name               = "lantern-index-extension"
  licenses                 = ["Apache-2.0"]
  // Before pgvector's library `vector`, where that is preloaded too.
  shared_preload_libraries = ["lantern_index"]
  postgresql_parameters    = {}
  extension_control_path   = []
  dynamic_library_path     = []
  ld_library_path          = []
  bin_path                 = []
  env                      = {}
  auto_update_os_libs      = false
  required_extensions      = ["pgvector"]
  create_extension         = true

  versions = {
    bookworm = {
      "18" = {
        package = "0.1.0"
        sql     = "0.1.0"
      }
    }
    trixie = {
      "18" = {
        package = "0.1.0"
        sql     = "0.1.0"
      }
    }
  }
}
