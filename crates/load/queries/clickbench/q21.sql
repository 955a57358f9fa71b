select count(*) from hits where URL like '%google%';
