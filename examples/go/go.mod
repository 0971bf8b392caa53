module onesided.example/read

go 1.19
