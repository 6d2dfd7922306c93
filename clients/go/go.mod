module zklock

go 1.19
