module driver

go 1.19

require zklock v0.0.0

replace zklock => ../../../clients/go
