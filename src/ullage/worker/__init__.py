"""What runs inside an executor process."""
