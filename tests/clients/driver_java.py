"""The Java driver 4.x with `drivers/java/Client.java`, if Java and Maven are installed. Maven downloads the driver."""

from _drivers import run_java

if __name__ == "__main__":
    run_java("java")
