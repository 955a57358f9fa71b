"""SQLAlchemy's reflection, with which Superset and other Python tools list tables and columns."""

import sqlalchemy
from _server import PASSWORD, Server
from postgres import ROWS, fill


def main():
    with Server() as server:
        fill(server)
        url = sqlalchemy.URL.create("postgresql+psycopg", "admin", PASSWORD, server.host, server.sql_port, "shop")
        engine = sqlalchemy.create_engine(url)
        about = sqlalchemy.inspect(engine)
        assert "shop" in about.get_schema_names()
        assert about.get_table_names("shop") == ["kinds", "more", "orders", "secrets", "visits"]
        assert about.get_view_names("shop") == ["by_price"] and about.get_materialized_view_names("shop") == []
        assert about.has_table("orders", "shop") and not about.has_table("nothing", "shop")
        columns = {column["name"]: str(column["type"]) for column in about.get_columns("orders", "shop")}
        assert columns == {"customer": "INTEGER", "id": "INTEGER", "price": "INTEGER", "note": "TEXT"}, columns
        assert len(about.get_columns("kinds", "shop")) == 22
        assert about.get_pk_constraint("orders", "shop")["constrained_columns"] == ["customer", "id"]
        assert about.get_foreign_keys("orders", "shop") == about.get_indexes("orders", "shop") == []
        assert about.get_unique_constraints("orders", "shop") == about.get_check_constraints("orders", "shop") == []
        assert about.get_table_comment("orders", "shop") == {"text": None}
        assert about.get_enums("shop") == []
        orders = sqlalchemy.Table("orders", sqlalchemy.MetaData(), schema="shop", autoload_with=engine)
        assert [column.name for column in orders.primary_key] == ["customer", "id"]
        some = sqlalchemy.select(sqlalchemy.func.count()).where(orders.c.customer == 7)
        with engine.connect() as db:
            assert db.execute(some).scalar() == ROWS // 10
        engine.dispose()


if __name__ == "__main__":
    main()
