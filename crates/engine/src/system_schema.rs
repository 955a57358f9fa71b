//! `system_schema` and `system_virtual_schema`: the schema as tables, as drivers read it.
